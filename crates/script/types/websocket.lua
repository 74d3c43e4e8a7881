---@meta
-- `veche.websocket`: connections to other WebSocket servers, `ws://` and `wss://`, on the worker's own loop.
--
-- They belong to the code that has opened them: when newer code has taken over and the older one has ended, they are
-- closed with 1001, and no callback of theirs is called any more. A connection stays open until somebody closes it, also
-- if the script has forgotten it.

---@class veche
---@field websocket veche.websocket
local veche = {}

---@class veche.websocket
local websocket = {}

---Opens a connection; waits until it is open. Its messages are received with `ws:receive()`.
---Errors, of which `veche.error` tells the kind: a bad URL; a bad option, by its name; "URL: why" where it does not open
---("unreachable"; "refused" with the status as its code): no address of that name, connection
---refused, not open within the timeout, a certificate that is not believed, "the server answered with status 403", a
---response that is none of a WebSocket; too many connections (10000 of an application on one worker); where nothing can wait.
---@param url string `ws://host:port/path?query` or `wss://…`; graphic ASCII, without a `#fragment`.
---@param options? veche.websocket.options
---@return veche.ws
function websocket.connect(url, options) end

---Opens a connection whose events are told to callbacks, as in a browser. Returns at once. The callbacks are called one
---after the other, in order, each in a coroutine of its own, and may wait; while one does, the next message waits behind it
---and in the end the other server does. An error in one is logged, and the connection goes on.
---Errors: a bad URL; a bad option, by its name.
---@param url string As for `connect`.
---@param options veche.websocket.callbacks
---@return veche.ws
function websocket.open(url, options) end

---@class veche.websocket.options
---@field headers? table<string, string|string[]> Further headers of the request, such as Origin, Cookie, Authorization. Not
---those that the handshake writes itself.
---@field protocols? string|string[] Subprotocols, the preferred first; the one that the server chose is in `ws.protocol`.
---@field timeout? number Seconds until it has to be open, name, TLS and all; 0.001 to 3600, 10 unless told.
---@field message_bytes_max? integer Largest message that is taken; a larger one ends the connection with 1009. 1 MiB unless
---told, at most 1 GiB.
---@field compression? boolean Offers permessage-deflate, without a context that is kept. False unless told.
---@field ping_interval? number After so many seconds of silence the server is pinged; 25 unless told, 0 for never.
---@field pong_timeout? number After so many further seconds it counts as gone (1006); 10 unless told.
---@field ca_file? string PEM file with the certificates to believe instead of the system's; beside the script, unless the
---path is absolute.
---@field insecure? boolean Believes every certificate: for tests only.

---@class veche.websocket.callbacks: veche.websocket.options
---@field onopen? fun(ws: veche.ws) It is open; again after each reconnect.
---@field onmessage? fun(ws: veche.ws, data: string, kind: "text"|"binary") Not before `onopen` has ended.
---@field onclose? fun(ws: veche.ws, code: integer, reason: string) It was open and is not any more. 1005 without a code,
---1006 without a closing handshake.
---@field onerror? fun(ws: veche.ws, why: string) It did not open.
---@field reconnect? boolean|veche.websocket.reconnect Opens it again whenever it ends or does not open, until `ws:close()`.

---@class veche.websocket.reconnect
---@field min? number Seconds to the first attempt, 1 unless told; twice as long each time. Half of it is by chance, so that
---not all come back at the same moment.
---@field max? number Longest time between two, 30 unless told. What was open for so long begins anew with `min`.

---A connection to another server. Once it is closed its calls say so.
---@class veche.ws
---@field url string
---@field protocol? string The subprotocol that the server chose.
---@field state "connecting"|"open"|"closed"
local ws = {}

---Sends a message after all that was sent before. Nothing waits.
---Errors: not a string; text that is not UTF-8.
---@param data string
---@param kind? "text"|"binary" "text" unless told.
---@return true? sent Nil if it is not open, or if more than about 1 MiB waits to be sent: the message is dropped then.
---@return ("closed"|"full")? why
function ws:send(data, kind) end

---Waits until there is room again after "full".
---Errors: "cancelled"; where nothing can wait.
---@return true? room Nil if it is closed.
---@return "closed"? why
function ws:drain() end

---The next message; waits for it. What came before the end is received before the end. Up to 256 messages or 1 MiB are kept
---for whoever receives; beyond that the other server waits.
---Errors: a connection with callbacks; a bad timeout; "cancelled"; where nothing can wait.
---@param timeout? number Seconds; without it as long as it takes.
---@return string? data Nil if it is closed, or after the timeout.
---@return "text"|"binary"|"timeout"|integer kind Or the close code (1005 without one, 1006 without a closing handshake), or
---"timeout".
---@return string? reason
function ws:receive(timeout) end

---Closes it after all that was sent before; messages that were not received are dropped. One with callbacks is not opened
---again.
---Errors: a code that may not be sent; a reason over 123 bytes.
---@param code? integer 1000 to 1003, 1007 to 1014 or 3000 to 4999; 1000 unless told.
---@param reason? string At most 123 bytes.
---@return true? closing Nil if it was closed before.
---@return "closed"? why
function ws:close(code, reason) end
