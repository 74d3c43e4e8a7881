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

---Calls a function every so many seconds, in a task of its own, until that is cancelled, the function fails or newer code
---takes over. Calls never overlap; what is missed while one takes its time is left out.
---@generic T
---@param seconds number From 0.001 to 31536000.
---@param f fun(...: T)
---@param ... T
---@return veche.task
function timer.every(seconds, f, ...) end
