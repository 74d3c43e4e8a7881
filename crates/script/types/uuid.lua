---@meta
-- `veche.uuid`: UUIDs (RFC 9562), 36 characters in lower case.

---@class veche.uuid
local uuid = {}

---Returns a random UUID, which can't be guessed.
---@return string
function uuid.v4() end

---Returns a UUID that begins with the time in milliseconds, so that database indexes stay ordered; those of one VM are in
---the order of creation. 62 bits are random.
---@return string
function uuid.v7() end
