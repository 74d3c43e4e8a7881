---@meta
-- A request, as `app.request` and `app.handshake` get it. A field that has been read once stays
-- available; other fields can be read until the request is answered. Reading a field for the first
-- time after that raises an error.

---@class veche.req
---@field method string In upper case.
---@field path string The path without the query, as used for routing: decoded, without dot segments and empty segments.
---`%2F` (a slash that is not a separator) and `%25` (a percent sign) stay encoded.
---@field user? string The user that the route authenticated, if any.
---@field remote string The client's IP address, without the port.
---@field query table<string, string> Decoded query parameters; for a repeated name, the first value.
---@field headers table<string, string> Names in lower case; several lines with one name are joined by ", ".
---@field cookies table<string, string>
---@field params table<string, string> Parameters captured by the route's pattern, decoded: they may contain slashes.
---@field body string
---@field json any The body parsed as JSON; nil if it is not JSON.
local req = {}

---Responds with server-sent events, for browsers' `EventSource`: `return req:events(function(stream) … end)`. The stream
---ends when the function returns. After 15 seconds without data a comment is sent, so that proxies keep the connection
---open and a client that has disconnected is noticed: whatever the function waits for then fails with "the client is gone".
---Raises an error if `f` is not a function.
---@param f fun(stream: veche.events)
---@return integer status, veche.headers headers, fun(write: veche.write) body
function req:events(f) end

---@class veche.events
---@field last_id? string The `Last-Event-ID` that the browser sends when it reconnects.
local events = {}

---Sends an event, or just its data. Waits like `write`.
---Errors: unknown fields; a line break or NUL in `event` or `id`; "the client is gone"; a call where waiting is
---impossible.
---@param event string|veche.events.event
function events:send(event) end

---Subscribes to a channel: every text that is published to it after this call has returned is sent as an event. (Binary
---publications are skipped.) A client that reads too slowly is disconnected, like a WebSocket client. Waits for the
---channel.
---Errors: an invalid name; a limit on subscriptions that is reached; "the client is gone"; a call where waiting is
---impossible.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@return true
function events:subscribe(channel) end

---Ends a subscription. Never waits; does nothing if there is no subscription.
---@param channel string
function events:unsubscribe(channel) end

---Waits until the client disconnects. It never returns: the disconnection raises an error, as in
---every call that waits.
function events:wait() end

---An event for a browser; at least one field is required.
---@class veche.events.event
---@field event? string Its type; browsers use "message" by default.
---@field id? string|number What the browser sends as `Last-Event-ID` when it reconnects.
---@field data? string|number|table A table is sent as JSON. Line breaks (`\n`) are preserved.
---@field retry? integer Milliseconds after which the browser reconnects, from 0 to 2^31.
