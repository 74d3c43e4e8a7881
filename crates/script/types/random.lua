---@meta
-- `veche.random`: cryptographically secure random numbers from the system's generator. `math.random` is faster but
-- predictable; each VM seeds it from the system's generator.

---@class veche.random
local random = {}

---@param count integer From 0 to 1048576.
---@return string bytes
function random.bytes(count) end

---Returns a uniformly distributed integer, both bounds included. Errors: not integers; `most` is below `least`.
---@param least integer From -2^53.
---@param most integer To 2^53.
---@return integer
function random.integer(least, most) end

---@return number number At least 0 and below 1.
function random.number() end
