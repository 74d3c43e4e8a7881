---@meta
-- A connection of a WebSocket client, as handlers get it. It may be kept; once the connection is closed its calls say so.

---@class veche.conn
---@field id string "worker.index.generation": unique while the server runs.
---@field is_open boolean False from the moment it is closed, by whichever side.
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

---Sends a message after all that was sent before. Nothing waits: see `app.drain`.
---Errors: not a string; text that is not UTF-8.
---@param data string
---@param kind? "text"|"binary" "text" unless told.
---@return true? sent Nil if it is closed.
---@return "closed"? why
function conn:send(data, kind) end

---Closes it after all that was sent before. `app.close` is called later, when it is gone.
---Errors: a code that may not be sent; a reason over 123 bytes, or not UTF-8.
---@param code? integer 1000 to 1003, 1007 to 1014 or 3000 to 4999; 1000 unless told.
---@param reason? string At most 123 bytes.
---@return true? closing Nil if it was closed before.
---@return "closed"? why
function conn:close(code, reason) end

---Subscribes it to a channel: from the return on it gets each publication. Waits for that.
---Errors: a bad name; "the connection is closed"; a limit that is reached; "cancelled"; where nothing can wait.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@return true
function conn:subscribe(channel) end

---Ends a subscription. Nothing waits; without one nothing happens.
---@param channel string
function conn:unsubscribe(channel) end
