---@meta
-- A WebSocket client's connection, as handlers get it. It may be stored; after the connection has closed, its methods
-- report that.

---@class veche.conn
---@field id string "worker.index.generation": unique while the server runs.
---@field is_open boolean False as soon as either side closes the connection.
---@field is_full boolean True while too much is queued for a client that reads slowly; see `send`.
---@field user? string The user that the handshake authenticated, if any. Nil after the connection has closed, as are all
---fields below.
---@field path? string Path of the request that opened the connection.
---@field remote? string The client's IP address, without the port.
---@field query? table<string, string> Decoded query parameters; of a repeated name the first.
---@field headers? table<string, string> Names in lower case; several lines with one name are joined by ", ".
---@field cookies? table<string, string>
---@field params? table<string, string> Parameters captured by the route's pattern.
---@field attributes table<string, string|number|boolean|nil> The application's own values for this connection: up to 64,
---together up to 65536 bytes with their names. They survive a reload of the code. Errors: other types; more or larger values.
local conn = {}

---Sends a message, in order with earlier ones. Never waits. If more than about 64 KiB are queued for a client that
---reads slowly, it returns `false, "full"`: this message is still sent, but send no more until `drain` returns or
---`app.drain` is called. Beyond `limits.outbox_bytes` the connection is closed with 1013.
---Errors: `data` is not a string, or is text that is not UTF-8.
---@param data string
---@param kind? "text"|"binary" "text" by default.
---@return boolean? sent Nil if the connection is closed; false if the message is queued for a slow client.
---@return "closed"|"full"? why
function conn:send(data, kind) end

---Waits until there is room for more messages. Returns at once if there is.
---Errors: "the connection is closed"; "cancelled"; where waiting is impossible.
---@return true
function conn:drain() end

---Closes the connection after all messages sent before. `app.close` is called later, once it has closed.
---Errors: a code that may not be sent; a reason of more than 123 bytes, or one that is not UTF-8.
---@param code? integer 1000 to 1003, 1007 to 1014 or 3000 to 4999; 1000 by default.
---@param reason? string Up to 123 bytes.
---@return true? closing Nil if it was already closed.
---@return "closed"? why
function conn:close(code, reason) end

---@class veche.subscribe.options
---@field since? string|{ offset: integer, epoch: string? } The position up to which the client knows the channel: from the
---messages it received, or from the result of an earlier call. Only on routes with `positions = true`.

---The result of subscribing. Without `offset` the channel has no history.
---@class veche.joined
---@field offset? integer Offset of the newest publication; the next publication has the next offset.
---@field epoch? string
---@field position? string "EPOCH:OFFSET".
---@field recovered? boolean With `since`: whether the client gets every publication it missed, before any newer one.

---Subscribes the connection to a channel: it gets every publication made after the call returns. Waits for the channel.
---On routes with `positions = true` the client first gets `{"subscribed":…}`, and publications carry their positions.
---Errors: an invalid name or option; "the connection is closed"; a limit that is reached; "cancelled"; where waiting is
---impossible.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@param options? veche.subscribe.options
---@return true|veche.joined joined With an options table, even an empty one, the position at which it joined.
function conn:subscribe(channel, options) end

---Replaces the token (`identity = "jwt"`) that opened the connection with another token of the same user, so that the
---connection stays open when the first one expires. `user` does not change. Waits for the result, which comes at once.
---Errors: `token` is not a string; "the connection is closed"; "cancelled"; where waiting is impossible.
---@param token string As the client sent it.
---@return number? seconds How long the token is valid from now, leeway included; `math.huge` if it does not expire.
---Nil if it is refused: the previous token remains in force.
---@return string? why For example "the token is refused: expired"; "the token belongs to another user"; "the connection was
---not opened with a token".
function conn:renew(token) end

---Ends a subscription. Never waits; does nothing if there is no subscription.
---@param channel string
function conn:unsubscribe(channel) end

---@class veche
local veche = {}

---Returns a connection of this application by its id. A connection of this worker is the same object that handlers get
---(equal by `==`, but a different table key: use its id as the key), or nil if it is closed. A connection of another
---worker supports only `send`, `close` and `id`; anything else is an error. This worker does not know whether such a
---connection is open: messages to a closed one are dropped, as are messages that an overloaded worker can't take.
---Messages from one handler to one connection arrive in order.
---Error: `id` is not a string.
---@param id string
---@return veche.conn|veche.far_conn|nil
function veche.connection(id) end

---@class veche.connections.options
---@field user string As in `conn.user`.
---@field limit? integer Maximum number of connections, 1 to 10000; 1000 by default.

---Lists the open connections of a user to this application, on all workers; waits for their answers. The elements are as
---returned by `veche.connection`. Connections that closed meanwhile are left out, but one of another worker may close at
---any moment. To send the same message to all of them, `veche.push` is cheaper and needs no list.
---Errors: an invalid option; "connections: a worker has not responded within 5 s"; "cancelled"; where waiting is impossible.
---@param options veche.connections.options
---@return (veche.conn|veche.far_conn)[] connections Grouped by worker; empty if there is none.
function veche.connections(options) end

---A connection of another worker. Calls return at once and do not report their outcome.
---@class veche.far_conn
---@field id string
local far_conn = {}

---Sends a message. Errors: those of `conn:send`.
---@param data string
---@param kind? "text"|"binary" "text" by default.
---@return true
function far_conn:send(data, kind) end

---Closes the connection. Errors: those of `conn:close`.
---@param code? integer 1000 by default.
---@param reason? string Up to 123 bytes.
---@return true
function far_conn:close(code, reason) end
