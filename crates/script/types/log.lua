---@meta
-- `veche.log`: lines of the server's log. Values stand side by side with tabs between, tables as JSON. A line has at
-- most 16384 bytes; what is beyond is cut off. `print` is `veche.log.info`.

---@class veche.log
local log = {}

---For developers.
---@param ... any
function log.debug(...) end

---Worth knowing.
---@param ... any
function log.info(...) end

---Something may be wrong.
---@param ... any
function log.warn(...) end

---Something is wrong.
---@param ... any
function log.error(...) end
