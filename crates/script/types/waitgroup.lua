---@meta
-- `veche.waitgroup`: waits until as many have said that they are done as were announced.

---@class veche
local veche = {}

---@return veche.waitgroup
function veche.waitgroup() end

---@class veche.waitgroup
local waitgroup = {}

---Announces some. Errors: not a whole number; the count would be below 0, or over 2^53.
---@param count? integer 1 unless told.
function waitgroup:add(count) end

---One of them is done. Error: more than were announced.
function waitgroup:done() end

---Waits until all are done; not at all if none is announced.
---Errors: "cancelled"; where nothing can wait.
function waitgroup:wait() end
