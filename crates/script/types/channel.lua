---@meta
-- `veche.channel`: values from one coroutine to another, in order. Between coroutines of one VM; for others there are
-- `veche.publish` and `veche.dict`.

---@class veche
local veche = {}

---A channel. Error: a bad capacity.
---@param capacity? integer Values that may lie in it, from 0 to 1000000; 0 unless told: then a sender waits for its
---receiver.
---@return veche.channel
function veche.channel(capacity) end

---@class veche.channel
local channel = {}

---Puts a value in, or hands it to a receiver that waits; waits while the channel is full. Who waits is served in order.
---Errors: nil; "cancelled": then the value was not sent, unless a receiver took it in the same turn; where nothing can
---wait.
---@param value any Anything but nil.
---@return true? sent Nil if the channel is closed, or is closed meanwhile.
---@return "closed"? why
function channel:send(value) end

---The same, but never waits.
---@param value any Anything but nil.
---@return true? sent
---@return "full"|"closed"|nil why
function channel:try_send(value) end

---Takes the next value; waits while there is none. What lies in a closed channel can still be taken.
---Errors: "cancelled": no value is lost by that, the next receiver gets it; where nothing can wait.
---@return any value Nil if the channel is closed and empty.
---@return "closed"? why
function channel:receive() end

---The same, but never waits.
---@return any value
---@return "empty"|"closed"|nil why
function channel:try_receive() end

---For loops: `for value in channel:values() do … end` receives until the channel is closed and empty.
---@return fun(): any
function channel:values() end

---Closes it: whoever waits goes on, to send or to receive gives nil and "closed".
---@return boolean was_open
function channel:close() end

---Values that lie in it.
---@return integer
function channel:length() end
