---@meta
-- `veche.waitgroup`: waits until a number of operations have finished.

---@class veche
local veche = {}

---@return veche.waitgroup
function veche.waitgroup() end

---@class veche.waitgroup
local waitgroup = {}

---Adds operations to wait for. Errors: not an integer; the count would be below 0, or above 2^53.
---@param count? integer 1 by default.
function waitgroup:add(count) end

---Marks one operation as finished. Error: all added operations are already marked.
function waitgroup:done() end

---Waits until all operations have finished; returns at once if there are none.
---Errors: "cancelled"; where waiting is impossible.
function waitgroup:wait() end
