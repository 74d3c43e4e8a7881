---@meta
-- A request as `app.request` and `app.handshake` get it. What was read once stays; the rest can be read until the
-- request is answered. Error: reading a field for the first time after that.

---@class veche.req
---@field method string In capitals.
---@field path string Without the query. The one that the route was found by: decoded, without dot segments and empty ones;
---but for `%2F`, a slash that separates nothing, and `%25`, a percent sign.
---@field user? string Who it is, if the route has settled that.
---@field remote string The client's address, without its port.
---@field query table<string, string> Decoded; of a name that comes twice, the first.
---@field headers table<string, string> Names in lower case; several lines of one name are joined by ", ".
---@field cookies table<string, string>
---@field params table<string, string> What the route's pattern has caught, decoded: a slash may be in it.
---@field body string
---@field json any The body as JSON; nil if it is none.
local req = {}

---Answers with server-sent events, as browsers read them with `EventSource`: `return req:events(function(stream) … end)`.
---They end when the function does. When nothing was sent for 15 seconds a comment is, so that proxies keep the connection
---and a client that has gone is noticed: then what the function waits for fails with "the client is gone".
---Error: not a function.
---@param f fun(stream: veche.events)
---@return integer status, veche.headers headers, fun(write: veche.write) body
function req:events(f) end

---@class veche.events
---@field last_id? string The `Last-Event-ID` that the browser sends when it connects again.
local events = {}

---Sends an event, or only its data. Waits as `write` does.
---Errors: other fields; a line break or NUL in `event` or `id`; "the client is gone"; where nothing can wait.
---@param event string|veche.event
function events:send(event) end

---From the return on each text that is published to the channel is an event, its data. (Binary publications are left out.)
---A client that does not read them is closed, as that of a WebSocket. Waits until the channel has it.
---Errors: a bad name; a limit that is reached; "the client is gone"; where nothing can wait.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@return true
function events:subscribe(channel) end

---Ends a subscription. Nothing waits; without one nothing happens.
---@param channel string
function events:unsubscribe(channel) end

---Waits until the client has gone, which is an error as everywhere; so it never returns.
function events:wait() end

---At least one of them.
---@class veche.event
---@field event? string Its kind; "message" in browsers unless told.
---@field id? string|number What the browser sends as `Last-Event-ID` when it connects again.
---@field data? string|number|table A table is sent as JSON. Line breaks are kept, as `
`.
---@field retry? integer Milliseconds after which the browser connects again; from 0 to 2^31.
