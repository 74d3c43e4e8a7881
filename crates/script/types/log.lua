---@meta
-- `veche.log`: writes to the server's log. Values are separated by tabs, tables are written as JSON. Lines are truncated to
-- 16384 bytes. `print` is `veche.log.info`.

---@class veche.log
local log = {}

---Details for developers.
---@param ... any
function log.debug(...) end

---Normal events.
---@param ... any
function log.info(...) end

---Possible problems.
---@param ... any
function log.warn(...) end

---Failures.
---@param ... any
function log.error(...) end
