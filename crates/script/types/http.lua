---@meta
-- `veche.http`: requests to other servers, HTTP/1.1 with or without TLS. Every call waits; connections are kept and used
-- again.
--
-- Errors of every call, raised where the script is and beginning with `http:`: a timeout, and what was waited for; nobody
-- can be reached; no TLS with whoever is there; an answer that is none, breaks off, or is longer than `max_body`; more
-- redirects than allowed. `veche.error` tells their kinds: "timeout", "unreachable", "connection_lost", "broken", "invalid". An
-- answer is no error, whatever its status. Bad arguments are errors that name the argument.

---@class veche.http
local http = {}

---@param url string `http://` or `https://`, without name and password, of at most 16384 bytes.
---@param options? veche.http_options
---@return veche.http_answer
---
---```lua
---local answer = veche.http.get("https://example.org/users", { query = { page = 2 }, timeout = 5 })
---if answer.status == 200 then
---  for _, user in ipairs(answer:json()) do print(user.name) end
---end
---```
function http.get(url, options) end

---@param url string As of `get`.
---@param options? veche.http_options
---@return veche.http_answer # Its body is empty.
function http.head(url, options) end

---@param url string As of `get`.
---@param options? veche.http_options
---@return veche.http_answer
function http.delete(url, options) end

---@param url string As of `get`.
---@param body? string|veche.http_options The body, or a table with `json`, `form` or `body`; that may have options too.
---@param options? veche.http_options
---@return veche.http_answer
---
---```lua
---local answer = veche.http.post("https://example.org/users", { json = { name = "Ann" } })
---```
function http.post(url, body, options) end

---@param url string As of `get`.
---@param body? string|veche.http_options As of `post`.
---@param options? veche.http_options
---@return veche.http_answer
function http.put(url, body, options) end

---@param url string As of `get`.
---@param body? string|veche.http_options As of `post`.
---@param options? veche.http_options
---@return veche.http_answer
function http.patch(url, body, options) end

---@param options veche.http_request
---@return veche.http_answer
function http.request(options) end

---@class veche.http_options
---@field headers? table<string, string|number|string[]> The client writes `host`, `user-agent` and `accept-encoding` itself where they are
---not told, and the ones about the connection always. A value has no line breaks.
---@field query? table<string, string|number|boolean|any[]>|string Put behind the URL; a table is encoded.
---@field body? string At most one of these three.
---@field json? any Encoded; the type is `application/json` unless told.
---@field form? table<string, string|number|boolean|any[]> Encoded as `application/x-www-form-urlencoded`.
---@field timeout? number Seconds for all of it, 30 unless told; with `stream` until the answer begins and then for each piece.
---@field connect_timeout? number Seconds for the name, the connection and TLS, 10 unless told.
---@field redirects? integer How many are followed, 5 unless told; 0: they are answers. 301 and 302 make a GET of a POST, 303 of
---everything but HEAD; `authorization` and `cookie` are not told to another host.
---@field max_body? integer Bytes of the answer's body, inflated; 16 MiB unless told, with `stream` no limit.
---@field max_per_host? integer Connections to one host at a time, 100 unless told; further calls wait, in order. Calls with
---another number have connections of their own.
---@field stream? boolean The body is not read: `read` and `chunks` do.
---@field ca_file? string Believe the certificates of this PEM file instead of the system's; beside the script, unless the path
---is absolute.
---@field insecure? boolean Believe every certificate.

---@class veche.http_request: veche.http_options
---@field url string
---@field method? string `GET` unless told; anything but CONNECT and TRACE.

---@class veche.http_answer
---@field status integer 200 to 999.
---@field headers table<string, string> Names in lower case; several values stand in one with commas, `set-cookie` is a list.
---@field body string Inflated if it came with gzip. Nil with `stream`.
---@field url string Where it came from after redirects.
local answer = {}

---The body as JSON. Errors: it is none; a streamed answer.
---@return any
function answer:json() end

---With `stream`: the next piece, nil at the end. Waits. It belongs to the coroutine that asked, and is given up when that
---ends. Errors: the connection breaks off; nothing comes within the timeout (it may be tried again); the answer was closed.
---@return string?
function answer:read() end

---With `stream`: all pieces that are left.
---
---```lua
---for chunk in veche.http.get(url, { stream = true }):chunks() do conn:send(chunk, "binary") end
---```
---@return fun(): string?
function answer:chunks() end

---With `stream`: gives up what was not read, and the connection with it. Never an error.
function answer:close() end
