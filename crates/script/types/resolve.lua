---@meta
-- `veche.resolve`: name resolution.

---@class veche
local veche = {}

---Returns the IP addresses of a host, from the system's resolver. Waits.
---
---```lua
---local addresses = veche.resolve("example.org")
---```
---@param host string A name, or an IP address as text; 1 to 253 bytes.
---@param options? { timeout?: number } `timeout` in seconds, 10 by default.
---@return string[] # At least one, without duplicates, in the resolver's order.
---Errors: a name without an address; no answer within the timeout; a call where waiting is
---impossible.
function veche.resolve(host, options) end
