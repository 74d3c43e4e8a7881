---@meta
-- `veche.queue`: passes values between any coroutines of all workers and all applications of the process. First in, first
-- out; each value has one receiver. A queue survives a reload of the code and ends with the process.

---@class veche
local veche = {}

---Returns the queue of that name, and creates it if it does not exist. A queue that is empty and no longer referenced by any
---script is removed after garbage collection. Errors: an invalid name; 1024 queues already.
---@param name string 1 to 255 bytes.
---@param options? veche.queue_options Apply from now on, to all users of the queue; values in it stay, even if they exceed the
---new limits. May be omitted.
---@return veche.queue
function veche.queue(name, options) end

---@class veche.queue_options
---@field capacity? integer Maximum number of values, from 1 to 1000000; 1000 by default.
---@field bytes_max? integer Approximate memory limit for values: their size and about 50 bytes each; at least 1024, 64 MiB by
---default.

---@class veche.queue
local queue = {}

---Adds a value. Waits while the queue is full. A table is passed as JSON.
---Errors: no value, or one of another type; a value larger than the queue; "cancelled"; where waiting is impossible, if the
---queue is full.
---@param value string|number|boolean|table
---@param timeout? number Seconds from 0 to 31536000; unlimited by default.
---@return true? pushed
---@return "timeout"? why
function queue:push(value, timeout) end

---Adds a value if there is room. Errors: those of `push`, except those about waiting.
---@param value string|number|boolean|table
---@return boolean pushed
function queue:try_push(value) end

---Takes the first value. Waits while there is none. Waiting coroutines are served in order; if one of them is cancelled,
---the next one gets the value.
---Errors: "cancelled"; where waiting is impossible, if the queue is empty.
---@param timeout? number Seconds from 0 to 31536000; unlimited by default.
---@return string|number|boolean|table|nil value
---@return "timeout"? why
function queue:pop(timeout) end

---Takes the first value, if there is one.
---@return string|number|boolean|table|nil value
function queue:try_pop() end

---Returns the number of values in the queue.
---@return integer
function queue:count() end
