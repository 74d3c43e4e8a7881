---@meta
-- `veche.timer`: later, and again and again.

---@class veche.timer
local timer = {}

---The same as `veche.sleep`.
---@param seconds number From 0 to 31536000.
function timer.sleep(seconds) end

---Calls a function later, in a task of its own; cancelling that before leaves it out.
---@generic T
---@param seconds number From 0 to 31536000.
---@param f fun(...: T)
---@param ... T
---@return veche.task
function timer.after(seconds, f, ...) end

---@class veche.timer.options
---@field seconds number From 0.001 to 31536000.
---What an error of the function leads to. "log", the default: it is logged, and the function is called again when it is
---due. "fail": the task fails with it, and so does the service whose timer it is.
---@field on_error? "log"|"fail"

---Calls a function every so many seconds, in a task of its own, until that is cancelled or newer code takes over. Calls
---never overlap; what is missed while one takes its time is left out. An error of the function, and whatever else ends a
---call, such as `cpu_budget`, is logged and ends that call alone, unless the options say otherwise.
---@generic T
---@param every number|veche.timer.options Seconds, from 0.001 to 31536000, or those and what an error leads to.
---@param f fun(...: T)
---@param ... T
---@return veche.task
function timer.every(every, f, ...) end
