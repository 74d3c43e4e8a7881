-- The HTTP client: requests, and responses as objects. Rust checks the arguments and creates the responses.
local inner = ...
local await_reply, native = inner.await_reply, inner.native
local begin, read, close, decode = native.http, native.http_read, native.http_close, native.modules.json.decode
local error, rawget, type = error, rawget, type

local http, methods = {}, {}

for _, name in ipairs { "get", "head", "delete" } do
  http[name] = function(url, options) return await_reply(begin, name, url, nil, options) end
end

for _, name in ipairs { "post", "put", "patch" } do
  http[name] = function(url, body, options) return await_reply(begin, name, url, body, options) end
end

function http.request(options) return await_reply(begin, "request", nil, nil, options) end

-- Returns the number of a response's stream.
local function stream_of(name, answer)
  local number = type(answer) == "table" and rawget(answer, "stream") or nil
  if type(number) == "number" then return number end
  if type(answer) == "table" and rawget(answer, "body") then
    error(name .. ": the body is in .body; only a response to a request with stream = true is read in parts", 3)
  end
  error("bad argument #1 to '" .. name .. "': a response of veche.http expected", 3)
end

function methods.read(answer)
  return await_reply(read, stream_of("read", answer))
end

function methods.chunks(answer)
  local number = stream_of("chunks", answer)
  return function() return await_reply(read, number) end
end

function methods.close(answer)
  local number = type(answer) == "table" and rawget(answer, "stream") or nil
  if type(number) == "number" then close(number) end
end

function methods.json(answer)
  local body = type(answer) == "table" and rawget(answer, "body") or nil
  if type(body) ~= "string" then
    error("bad argument #1 to 'json': a response of veche.http with a body expected (not stream = true)", 2)
  end
  return decode(body)
end

native.http_answers { __index = methods, __metatable = false }

return { http = http }
