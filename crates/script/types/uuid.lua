---@meta
-- `veche.uuid`: RFC 9562, 36 characters in lower case.

---@class veche.uuid
local uuid = {}

---All random: nobody can guess it.
---@return string
function uuid.v4() end

---Begins with the time in milliseconds, so that indexes stay in order; those of one VM are in the order in which they were
---made. 62 bits are random.
---@return string
function uuid.v7() end
