---@meta
-- `veche.channel`: passes values from one coroutine to another, in order, within one VM. Between VMs use `veche.publish`,
-- `veche.queue` and `veche.dict`.

---@class veche
local veche = {}

---Creates a channel. Error: an invalid capacity.
---@param capacity? integer Number of values that it can buffer, from 0 to 1000000; 0 by default: then a sender waits for a
---receiver.
---@return veche.channel
function veche.channel(capacity) end

---@class veche.channel
local channel = {}

---Adds a value to the buffer, or passes it to a waiting receiver; waits while the buffer is full. Waiting coroutines are
---served in order.
---Errors: nil; "cancelled": then the value was not sent, unless a receiver took it in the same turn; where waiting is
---impossible.
---@param value any Any value but nil.
---@return true? sent Nil if the channel is closed, or is closed while the call waits.
---@return "closed"? why
function channel:send(value) end

---Like `send`, but never waits.
---@param value any Any value but nil.
---@return true? sent
---@return "full"|"closed"|nil why
function channel:try_send(value) end

---Takes the next value; waits while there is none. Values buffered in a closed channel can still be received.
---Errors: "cancelled": no value is lost then, the next receiver gets it; where waiting is impossible.
---@return any value Nil if the channel is closed and empty.
---@return "closed"? why
function channel:receive() end

---Like `receive`, but never waits.
---@return any value
---@return "empty"|"closed"|nil why
function channel:try_receive() end

---Iterates over the values: `for value in channel:values() do … end` receives until the channel is closed and empty.
---@return fun(): any
function channel:values() end

---Closes the channel: every waiting `send` and `receive` returns nil and "closed".
---@return boolean was_open
function channel:close() end

---Returns the number of buffered values.
---@return integer
function channel:length() end
