-- The service of the Highload Cup 2017: travellers, places and visits. Its rules are in the README.

local veche = require "veche"
local data = require "tables"
local queries = require "queries"
local change = require "changes"

local tables = data.tables
local visits_of, average_of = queries.visits_of, queries.average_of
local JSON = { ["Content-Type"] = "application/json" }

local ready = not veche.config.data

local function get(req, kind, id, tail)
  if tail == "" then
    local row = tables[kind]:json(id)
    if row then return 200, JSON, row end
    return 404, ""
  end
  local query
  if tail == "/visits" and kind == "users" then
    query = visits_of
  elseif tail == "/avg" and kind == "locations" then
    query = average_of
  end
  if not query or not tables[kind]:has(id) then return 404, "" end
  local answer = query(id, req.query)
  if answer then return 200, JSON, answer end
  return 400, ""
end

local function post(req, kind, id, tail)
  if tail ~= "" or not tables[kind]:has(id) then return 404, "" end
  local status = change(kind, req, id)
  return status, JSON, status == 200 and "{}" or ""
end

local function post_new(req, kind)
  if not tables[kind] then return 404, "" end
  local status = change(kind, req)
  return status, JSON, status == 200 and "{}" or ""
end

-- One function instead of a router, since it is faster for these five paths.
local function request(req)
  if not ready then
    ready = data.is_loaded()
    if not ready then return 503, { ["Retry-After"] = 1 }, "" end
  end
  local path, method = req.path, req.method
  local kind, id, tail = path:match("^/(%l+)/(%d+)(.*)$")
  if not kind then
    if method == "POST" then return post_new(req, path:match("^/(%l+)/new$")) end
    return 404, ""
  end
  id = tonumber(id)
  if not tables[kind] then return 404, "" end
  if method == "GET" or method == "HEAD" then return get(req, kind, id, tail) end
  if method == "POST" then return post(req, kind, id, tail) end
  return 405, { Allow = "GET, POST" }, ""
end

-- While the data is being loaded, requests get 503, which shows that the server runs. Each worker
-- checks whether all data is loaded, so once one worker has sent another status, none sends 503 any
-- more.
local function start()
  if not ready then veche.spawn(data.load, veche.config.data) end
end

return { start = start, request = request }
