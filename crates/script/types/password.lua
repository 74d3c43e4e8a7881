---@meta
-- `veche.password`: hashes of passwords by Argon2id, for a list of users. They are computed on threads beside the workers,
-- for half of the cores at a time, and for four at most; each takes 19 MiB meanwhile. For each one that is computed 32 wait.

---@class veche.password
local password = {}

---A new hash with a salt of its own, as a PHC string: `$argon2id$v=19$m=19456,t=2,p=1$…`, 97 bytes. Waits.
---
---```lua
---local hash = veche.password.hash(req.json.password)
---if not hash then return 503, { ["Retry-After"] = "2" }, "Try again in a moment.\n" end
---```
---@param password string At most 4096 bytes.
---@return string? hash Nil if too many wait already.
---@return "busy"? why
---Errors: bad arguments; "cancelled"; where nothing can wait.
function password.hash(password) end

---Whether a password belongs to a hash. The comparison takes the same time wherever they differ. Waits.
---@param password string At most 4096 bytes.
---@param hash string? A PHC string of Argon2id, Argon2i or Argon2d that asks for at most 64 MiB and four times the work of
---`password.hash`. With nil the answer is false, after as long as for a hash: so nobody learns which users there are.
---@return boolean? is_right Nil if too many wait already.
---@return "busy"? why
---Errors: no such hash; bad arguments; "cancelled"; where nothing can wait.
function password.verify(password, hash) end
