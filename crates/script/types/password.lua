---@meta
-- `veche.password`: password hashing with Argon2id. Hashes are computed on separate threads, one for every two cores and at
-- most four; each computation takes 19 MiB. Up to 32 calls per thread are queued.

---@class veche.password
local password = {}

---Returns a new hash with a random salt, as a PHC string: `$argon2id$v=19$m=19456,t=2,p=1$…`, 97 bytes. Waits.
---
---```lua
---local hash = veche.password.hash(req.json.password)
---if not hash then return 503, { ["Retry-After"] = "2" }, "Try again in a moment.\n" end
---```
---@param password string Up to 4096 bytes.
---@return string? hash Nil if the queue of calls is full.
---@return "busy"? why
---Errors: invalid arguments; "cancelled"; where waiting is impossible.
function password.hash(password) end

---Returns whether a password matches a hash. The comparison takes constant time. Waits.
---@param password string Up to 4096 bytes.
---@param hash string? A PHC string of Argon2id, Argon2i or Argon2d that requires up to 64 MiB and up to four times the work
---of `password.hash`. With nil the result is false after the time that a hash takes, so that the response time does not
---reveal which users exist.
---@return boolean? is_right Nil if the queue of calls is full.
---@return "busy"? why
---Errors: an invalid hash; invalid arguments; "cancelled"; where waiting is impossible.
function password.verify(password, hash) end
