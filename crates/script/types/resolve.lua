---@meta
-- `veche.resolve`: the addresses of a host.

---@class veche
local veche = {}

---The addresses of a host, as the system's resolver has them. Waits.
---
---```lua
---local addresses = veche.resolve("example.org")
---```
---@param host string A name, or an address as text; 1 to 253 bytes.
---@param options? { timeout?: number } `timeout` in seconds, 10 by default.
---@return string[] # At least one, each once, in the resolver's order.
---Errors: the name has no address; no answer within the timeout; where nothing can wait.
function veche.resolve(host, options) end
