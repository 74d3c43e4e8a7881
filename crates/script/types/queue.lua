---@meta
-- `veche.queue`: values from any coroutine to any other, on all workers and of all applications of the process. First in,
-- first out, and each value to one taker. A queue outlives a reload and ends with the process.

---@class veche
local veche = {}

---The queue of that name, which comes to be when it is first asked for. Once it is empty and no script has it any more, as
---the collector finds, it makes room for others. Errors: a bad name; 1024 queues already.
---@param name string 1 to 255 bytes.
---@param options? veche.queue_options Hold from now on, for all that have the queue; what is in it stays, even if that is more
---than they allow. They may be left out.
---@return veche.queue
function veche.queue(name, options) end

---@class veche.queue_options
---@field capacity? integer Most values, from 1 to 1000000; 1000 unless told.
---@field bytes_max? integer About the memory that they may take: their bytes and some 50 each; at least 1024, 64 MiB unless
---told.

---@class veche.queue
local queue = {}

---Puts a value in. Waits while the queue is full. A table travels as JSON.
---Errors: no value, or one of another kind; one that is larger than the queue; "cancelled"; where nothing can wait, if it
---is full.
---@param value string|number|boolean|table
---@param timeout? number Seconds from 0 to 31536000; as long as it takes unless told.
---@return true? pushed
---@return "timeout"? why
function queue:push(value, timeout) end

---Puts a value in if there is room. Errors as those of `push`, but for the waiting.
---@param value string|number|boolean|table
---@return boolean pushed
function queue:try_push(value) end

---Takes the first value. Waits while there is none. Those who wait are served in order; if one of them is cancelled, the
---value is the next one's.
---Errors: "cancelled"; where nothing can wait, if it is empty.
---@param timeout? number Seconds from 0 to 31536000; as long as it takes unless told.
---@return string|number|boolean|table|nil value
---@return "timeout"? why
function queue:pop(timeout) end

---Takes the first value, if there is one.
---@return string|number|boolean|table|nil value
function queue:try_pop() end

---Values in it.
---@return integer
function queue:count() end
