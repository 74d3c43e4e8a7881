---@meta
-- `veche.http`: an HTTP/1.1 client, with or without TLS. Every call waits; connections are kept open and reused.
--
-- Errors of every call, which begin with `http:` and are raised at the calling line: a timeout, with the step that timed
-- out; the server is unreachable; the TLS handshake failed; the response is invalid, incomplete, or longer than
-- `max_body`; too many redirects. `veche.error` gives their kinds: "timeout", "unreachable", "connection_lost", "broken",
-- "invalid". A response is never an error, whatever its status. Invalid arguments raise errors that name the argument.

---@class veche.http
local http = {}

---Sends a GET request.
---
---```lua
---local answer = veche.http.get("https://example.org/users", { query = { page = 2 }, timeout = 5 })
---if answer.status == 200 then
---  for _, user in ipairs(answer:json()) do print(user.name) end
---end
---```
---@param url string `http://` or `https://`, without user name and password, up to 16384 bytes.
---@param options? veche.http_options
---@return veche.http_answer
function http.get(url, options) end

---@param url string As for `get`.
---@param options? veche.http_options
---@return veche.http_answer # Its body is empty.
function http.head(url, options) end

---@param url string As for `get`.
---@param options? veche.http_options
---@return veche.http_answer
function http.delete(url, options) end

---Sends a POST request.
---
---```lua
---local answer = veche.http.post("https://example.org/users", { json = { name = "Ann" } })
---```
---@param url string As for `get`.
---@param body? string|veche.http_options The body, or a table with `json`, `form` or `body`, which may contain other options
---too.
---@param options? veche.http_options
---@return veche.http_answer
function http.post(url, body, options) end

---@param url string As for `get`.
---@param body? string|veche.http_options As for `post`.
---@param options? veche.http_options
---@return veche.http_answer
function http.put(url, body, options) end

---@param url string As for `get`.
---@param body? string|veche.http_options As for `post`.
---@param options? veche.http_options
---@return veche.http_answer
function http.patch(url, body, options) end

---@param options veche.http_request
---@return veche.http_answer
function http.request(options) end

---@class veche.http_options
---@field headers? table<string, string|number|string[]> The client adds `host`, `user-agent` and `accept-encoding` unless they
---are given, and always writes the headers about the connection. Values must not contain line breaks; 64 KiB in all.
---@field query? table<string, string|number|boolean|any[]>|string Appended to the URL; a table is encoded.
---@field body? string At most one of `body`, `json` and `form`.
---@field json? any Encoded as JSON, with the content type `application/json` unless another is given.
---@field form? table<string, string|number|boolean|any[]> Encoded as `application/x-www-form-urlencoded`; up to 8 MiB.
---@field timeout? number Seconds for the whole call, 30 by default; with `stream`, for the response head and then for each
---piece.
---@field connect_timeout? number Seconds for name resolution, connection and TLS, 10 by default.
---@field redirects? integer Maximum number of redirects to follow, 5 by default; with 0 redirects are returned. 301 and 302
---turn a POST into a GET, 303 every method but HEAD; `authorization` and `cookie` are not sent to another host.
---@field max_body? integer Maximum size of the decompressed response body in bytes; 16 MiB by default, unlimited with `stream`.
---@field max_per_host? integer Maximum number of concurrent connections to one host, 100 by default; further calls wait, in
---order. Calls with different values use separate pools.
---@field stream? boolean The body is not read by the call, but by `read` and `chunks`.
---@field ca_file? string Trust the certificates in this PEM file instead of the system's; relative to the script, unless the
---path is absolute.
---@field insecure? boolean Do not verify certificates.

---@class veche.http_request: veche.http_options
---@field url string
---@field method? string `GET` by default; anything but CONNECT and TRACE.

---@class veche.http_answer
---@field status integer 200 to 999.
---@field headers table<string, string> Names in lower case; several values of one name are joined by commas, except
---`set-cookie`, which is a list.
---@field body string Decompressed if it was sent with gzip. Nil with `stream`.
---@field url string The URL of the response, after redirects.
local answer = {}

---Parses the body as JSON. Errors: invalid JSON; a streamed response.
---@return any
function answer:json() end

---With `stream`: returns the next piece of the body, nil at the end. Waits. The body belongs to the coroutine that made the
---request, and is abandoned when that ends. Errors: the connection broke; nothing arrived within the timeout (the call may
---be repeated); the response was closed.
---@return string?
function answer:read() end

---With `stream`: iterates over the remaining pieces.
---
---```lua
---for chunk in veche.http.get(url, { stream = true }):chunks() do conn:send(chunk, "binary") end
---```
---@return fun(): string?
function answer:chunks() end

---With `stream`: discards the rest of the body and closes the connection. Never raises an error.
function answer:close() end
