---@meta
-- `veche.file`: files as response bodies.

---@class veche
local veche = {}

---Refers to a file below the folder that `files` of the `[[app]]` or `[[route]]` names, to be returned by `app.request`:
---`return veche.file("a.pdf")`, or after a status and headers. The response has its content type, length, entity tag and
---date; conditional and range requests are supported (except with a status other than 200). The file is not opened here:
---if it does not exist, or a link leads out of the folder, the client gets 404. It is sent in pieces as the client reads,
---whatever its size.
---Errors: the configuration names no folder; the path is not a string of 1 to 1024 bytes of UTF-8, begins or ends with
---`/`, or has a segment that is empty, begins with `.`, or contains a backslash or a control character; unknown options or
---options of another type.
---@param path string Segments are separated by `/`.
---@param options? veche.file_options
---@return veche.file
function veche.file(path, options) end

---@class veche.file_options
---@field download? string Makes browsers save the file under this name instead of displaying it. 1 to 255 bytes.
---@field content_type? string By default derived from the file name's extension.

---@class veche.file
