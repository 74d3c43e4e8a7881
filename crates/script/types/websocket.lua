---@meta
-- `veche.websocket`: a client for other WebSocket servers, `ws://` and `wss://`, on the worker's own event loop.
--
-- Connections belong to the code that opened them: when that code has been replaced and has ended,
-- they are closed with 1001, and their callbacks are no longer called. A connection stays open
-- until either side closes it, even if the script no longer references it.

---@class veche
---@field websocket veche.websocket
local veche = {}

---@class veche.websocket
local websocket = {}

---Opens a connection and waits until it is open. Its messages are received with `ws:receive()`.
---Errors, whose kind `veche.error` gives: an invalid URL; an invalid option, by its name; "URL: why" if the connection
---could not be opened ("unreachable"; "refused" with the status as its code): no address for that name, connection refused,
---not open within the timeout, an untrusted certificate, "the server answered with status 403", a response that is not a
---WebSocket handshake; too many connections (10000 per application and worker); where waiting is impossible.
---@param url string `ws://host:port/path?query` or `wss://…`; printable ASCII, without a `#fragment`.
---@param options? veche.websocket.options
---@return veche.ws
function websocket.connect(url, options) end

---Opens a connection that reports events to callbacks, as in a browser. Returns at once. The callbacks are called one at a
---time, in order, each in its own coroutine, and may wait; meanwhile further messages are queued, and eventually the
---server has to wait. An error in a callback is logged, and the connection stays open.
---Errors: an invalid URL; an invalid option, by its name.
---@param url string As for `connect`.
---@param options veche.websocket.callbacks
---@return veche.ws
function websocket.open(url, options) end

---@class veche.websocket.options
---@field headers? table<string, string|string[]> Additional request headers, such as Origin, Cookie or Authorization. Headers of
---the handshake itself are not allowed.
---@field protocols? string|string[] Subprotocols in order of preference; the one that the server chose is in `ws.protocol`.
---@field timeout? number Seconds for name resolution, connection, TLS and handshake together; 0.001 to 3600, 10 by default.
---@field message_bytes_max? integer Maximum size of a received message; a larger one closes the connection with 1009. 1 MiB by
---default, up to 1 GiB.
---@field compression? boolean Offers permessage-deflate, without context takeover. False by default.
---@field ping_interval? number Seconds of silence after which the server is pinged; 25 by default, 0 for never.
---@field pong_timeout? number Seconds after a ping without an answer until the connection counts as lost (1006); 10 by default.
---@field ca_file? string PEM file with the certificates to trust instead of the system's; relative to the script, unless the
---path is absolute.
---@field insecure? boolean Do not verify certificates: for tests only.

---@class veche.websocket.callbacks: veche.websocket.options
---@field onopen? fun(ws: veche.ws) The connection is open; called again after each reconnect.
---@field onmessage? fun(ws: veche.ws, data: string, kind: "text"|"binary") Called only after `onopen` has ended.
---@field onclose? fun(ws: veche.ws, code: integer, reason: string) The connection was open and has closed. `code` is 1005
---if the close frame had no code, and 1006 if there was no closing handshake.
---@field onerror? fun(ws: veche.ws, why: string) The connection could not be opened.
---@field reconnect? boolean|veche.websocket.reconnect Reopens the connection whenever it closes or can't be opened, until
---`ws:close()`.

---@class veche.websocket.reconnect
---@field min? number Seconds until the first attempt, 1 by default; doubled for each further one. Half of the delay is random,
---so that clients don't reconnect all at once.
---@field max? number Maximum delay, 30 by default. After a connection was open for this long, delays start again at `min`.

---A connection to another server. After it has closed, its methods report that.
---@class veche.ws
---@field url string
---@field protocol? string The subprotocol that the server chose.
---@field state "connecting"|"open"|"closed"
local ws = {}

---Sends a message, in order with earlier ones. Never waits.
---Errors: not a string; text that is not UTF-8.
---@param data string
---@param kind? "text"|"binary" "text" by default.
---@return true? sent Nil if the connection is not open, or if more than about 1 MiB is queued: then the message is dropped.
---@return ("closed"|"full")? why
function ws:send(data, kind) end

---Waits until there is room again, after `send` has returned "full".
---Errors: "cancelled"; where waiting is impossible.
---@return true? room Nil if the connection is closed.
---@return "closed"? why
function ws:drain() end

---Returns the next message; waits for it. Messages that arrived before the connection closed are received first. Up to 256
---messages or 1 MiB are buffered; beyond that the server has to wait.
---Errors: a connection with callbacks; an invalid timeout; "cancelled"; where waiting is impossible.
---@param timeout? number Seconds; unlimited by default.
---@return string? data Nil if the connection is closed, or after the timeout.
---@return "text"|"binary"|"timeout"|integer kind Without data, the close code (1005 without one, 1006 without a closing
---handshake) or "timeout".
---@return string? reason
function ws:receive(timeout) end

---Closes the connection after all messages sent before; messages not yet received are dropped. A connection with callbacks
---is not reopened.
---Errors: a code that may not be sent; a reason of more than 123 bytes.
---@param code? integer 1000 to 1003, 1007 to 1014 or 3000 to 4999; 1000 by default.
---@param reason? string Up to 123 bytes.
---@return true? closing Nil if it was already closed.
---@return "closed"? why
function ws:close(code, reason) end
