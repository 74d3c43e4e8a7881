---@meta
-- A connection of a WebSocket client, as handlers get it. It may be kept; once the connection is closed its calls say so.

---@class veche.conn
---@field id string "worker.index.generation": unique while the server runs.
---@field is_open boolean False from the moment it is closed, by whichever side.
---@field is_full boolean More waits to be sent than the client reads: see `send`.
---@field user? string Who it is, if the handshake has settled that. Nil once it is gone, like all that follows.
---@field path? string Path of the request that opened it.
---@field remote? string The client's address, without its port.
---@field query? table<string, string> Decoded; of a name that comes twice, the first.
---@field headers? table<string, string> Names in lower case; several lines of one name are joined by ", ".
---@field cookies? table<string, string>
---@field params? table<string, string> What the route's pattern has caught.
---@field attributes table<string, string|number|boolean|nil> Its own notes: at most 64, each at most 65536 bytes. They
---outlive a reload of the code. Errors: other values; more, or larger ones.
local conn = {}

---Sends a message after all that was sent before. Nothing waits. Where more than some 64 KiB wait for a client that reads
---slowly, it returns `false, "full"`: the message is on its way all the same, but it should be the last until `drain`
---returns or `app.drain` is called. Who goes on beyond `limits.outbox_bytes` loses the client, with 1013.
---Errors: not a string; text that is not UTF-8.
---@param data string
---@param kind? "text"|"binary" "text" unless told.
---@return boolean? sent Nil if it is closed; false if it is sent and the client is slow.
---@return "closed"|"full"? why
function conn:send(data, kind) end

---Waits until there is room for more, if there is none.
---Errors: "the connection is closed"; "cancelled"; where nothing can wait.
---@return true
function conn:drain() end

---Closes it after all that was sent before. `app.close` is called later, when it is gone.
---Errors: a code that may not be sent; a reason over 123 bytes, or not UTF-8.
---@param code? integer 1000 to 1003, 1007 to 1014 or 3000 to 4999; 1000 unless told.
---@param reason? string At most 123 bytes.
---@return true? closing Nil if it was closed before.
---@return "closed"? why
function conn:close(code, reason) end

---@class veche.subscribe.options
---@field since? string|{ offset: integer, epoch: string? } Up to where its client knows the channel, as it was told or the
---result of an earlier call says. Only on routes with `positions = true`.

---Where a connection has joined a channel. Without `offset`: the channel keeps no history.
---@class veche.joined
---@field offset? integer Of the latest publication so far: what comes next has the next one.
---@field epoch? string
---@field position? string "EPOCH:OFFSET".
---@field recovered? boolean With `since`: whether the client gets all that it has missed, before anything else of the channel.

---Subscribes it to a channel: from the return on it gets each publication. Waits for that. On routes with
---`positions = true` the client first hears `{"subscribed":…}`, and publications come with their positions.
---Errors: a bad name or option; "the connection is closed"; a limit that is reached; "cancelled"; where nothing can wait.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@param options? veche.subscribe.options
---@return true|veche.joined joined With options, even none of them, where it has joined.
function conn:subscribe(channel, options) end

---Takes another token (`identity = "jwt"`) of the same user in place of the one that has opened it, so that it goes on
---when that one expires. `user` stays as it is. Waits for the answer, which comes at once.
---Errors: not a string; "the connection is closed"; "cancelled"; where nothing can wait.
---@param token string As the client has sent it.
---@return number? seconds How long it holds from now, leeway included; `math.huge` for ever. Nil if it is refused: the one before stays.
---@return string? why Such as "the token is refused: expired"; "the token is another user's"; "no token has opened this
---connection".
function conn:renew(token) end

---Ends a subscription. Nothing waits; without one nothing happens.
---@param channel string
function conn:unsubscribe(channel) end

---@class veche
local veche = {}

---A connection of this application by its id. One of this worker's is as its handlers get it, or nil if it is closed (it
---is `==` to that, but another table key: use its id there). One of another worker's can be sent to and closed, and has
---its `id`; all else is an error. Nobody can say from here whether it is open: what is sent to a connection that is
---gone is dropped, and so is what a worker that lags can't take. What one handler sends to one connection comes in order.
---Error: not a string.
---@param id string
---@return veche.conn|veche.far_conn|nil
function veche.connection(id) end

---@class veche.connections.options
---@field user string As `conn.user` has it.
---@field limit? integer Most connections, 1 to 10000; 1000 unless told.

---The open connections of a user to this application, on all workers; waits for their answers. Each is as
---`veche.connection` gives it. Those that were closed meanwhile are not among them, but another worker's may close at any
---moment. To send the same to all of them, `veche.push` is cheaper and needs no list.
---Errors: a bad option; "connections: a worker has not answered within 5 s"; "cancelled"; where nothing can wait.
---@param options veche.connections.options
---@return (veche.conn|veche.far_conn)[] connections By worker; an empty list if there is none.
function veche.connections(options) end

---A connection of another worker. Calls return at once; nothing says what has become of them.
---@class veche.far_conn
---@field id string
local far_conn = {}

---Errors: as those of `conn:send`.
---@param data string
---@param kind? "text"|"binary" "text" unless told.
---@return true
function far_conn:send(data, kind) end

---Errors: as those of `conn:close`.
---@param code? integer 1000 unless told.
---@param reason? string At most 123 bytes.
---@return true
function far_conn:close(code, reason) end
