---@meta
-- `veche.file`: files as bodies of responses.

---@class veche
local veche = {}

---A file below the folder that `files` of the `[[app]]` or `[[route]]` names, for the return of `app.request`:
---`return veche.file("a.pdf")`, or with a status and headers before it. Its type, length, entity tag and date are said, and conditions and ranges count
---(they don't where the status is not 200). Files are neither read nor looked for here: if there is none, or a link leads
---out of the folder, the client gets 404. It goes out piece by piece as the client reads, whatever its size.
---Errors: the configuration names no folder; a path that is no string of 1 to 1024 bytes of UTF-8, begins or ends with `/`, or has a part that is empty or
---begins with `.`, a backslash or a control character; options of other names or kinds.
---@param path string With `/` between names.
---@param options? veche.file_options
---@return veche.file
function veche.file(path, options) end

---@class veche.file_options
---@field download? string The name under which browsers save it, instead of showing it. 1 to 255 bytes.
---@field content_type? string Unless told, by the name's extension.

---@class veche.file
