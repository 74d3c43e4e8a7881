---@meta
-- `veche.timer`: delayed and periodic calls.

---@class veche.timer
local timer = {}

---Same as `veche.sleep`.
---@param seconds number From 0 to 31536000.
function timer.sleep(seconds) end

---Calls a function later, in a new task; cancel the task to prevent the call.
---@generic T
---@param seconds number From 0 to 31536000.
---@param f fun(...: T)
---@param ... T
---@return veche.task
function timer.after(seconds, f, ...) end

---@class veche.timer.options
---@field seconds number From 0.001 to 31536000.
---What happens after an error of the function. "log", the default: the error is logged, and the function is called again
---at the next time. "fail": the task fails with the error, and so does the service that the timer belongs to.
---@field on_error? "log"|"fail"

---Calls a function periodically, in a new task, until the task is cancelled or newer code replaces this one. Calls never
---overlap; times that pass during a call are skipped. An error of the function, or anything else that ends a call, such as
---`cpu_budget`, is logged and ends only that call, unless the options say otherwise.
---@generic T
---@param every number|veche.timer.options Interval in seconds, from 0.001 to 31536000, or options.
---@param f fun(...: T)
---@param ... T
---@return veche.task
function timer.every(every, f, ...) end
