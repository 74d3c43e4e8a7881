---@meta
-- `veche.log`: writes to the server's log. Values are separated by tabs, tables are written as JSON. Lines are truncated to
-- 16384 bytes. `print` is `veche.log.info`.

---@class veche.log
local log = {}

---Logs details for developers.
---@param ... any
function log.debug(...) end

---Logs normal events.
---@param ... any
function log.info(...) end

---Logs possible problems.
---@param ... any
function log.warn(...) end

---Logs failures.
---@param ... any
function log.error(...) end
