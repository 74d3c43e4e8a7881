-- `veche.connection` and `veche.connections`, which find connections by id and by user. Also the methods of connections
-- on other workers.
local inner = ...

local native, can_wait, cannot_wait, park = inner.native, inner.can_wait, inner.cannot_wait, inner.try_park
local identify, is_full, may_be_full, room = native.identify, native.client.is_full, native.may_be_full, native.client.room
local await_reply = inner.await_reply
local far, sleep, error, setmetatable, tostring = native.far, native.sleep, error, setmetatable, tostring

-- Waits until the connection has room for more data.
function inner.connection_methods.drain(conn)
  local index, generation = identify(conn)
  if not can_wait() then error(cannot_wait(), 2) end
  while true do
    local full = is_full(index, generation)
    if full == nil then error("the connection is closed", 2) end
    -- Whether the data sent in this run fills the connection is known only after the run.
    local is_unknown = not full and may_be_full(index, generation)
    if not full and not is_unknown then return true end
    local ok, why = park(is_unknown and sleep(0.001) or room(index, generation))
    if not ok then error(why, 2) end
  end
end

---------------------------------------------------------------------------------------------------- other workers

-- Maps the object of a connection on another worker to a list of its worker, index, generation and id.
local places = setmetatable({}, { __mode = "k" })

local function place(conn, name)
  local known = places[conn]
  if not known then
    error("bad argument #1 to '" .. name .. "': a connection expected (call it with a colon)", 3)
  end
  return known
end

local methods = {}

function methods.send(conn, ...)
  local known = place(conn, "send")
  return far.send(known[1], known[2], known[3], ...)
end

function methods.close(conn, ...)
  local known = place(conn, "close")
  return far.close(known[1], known[2], known[3], ...)
end

local meta = { __metatable = false }

function meta.__index(conn, key)
  if methods[key] then return methods[key] end
  if key == "id" then return places[conn][4] end
  error("a connection of another worker has only send, close and id, not '" .. tostring(key) .. "'", 2)
end

function meta.__newindex(_, key)
  error("a connection's fields can't be set: '" .. tostring(key) .. "'", 2)
end

function meta.__tostring(conn) return "connection " .. places[conn][4] end
function meta.__eq(a, b) return places[a] ~= nil and places[b] ~= nil and places[a][4] == places[b][4] end

local function far_one(worker, index, generation, id)
  local conn = setmetatable({}, meta)
  places[conn] = { worker, index, generation, id }
  return conn
end

return {
  connection = function(id)
    local worker, index, generation = far.parse(id)
    if not worker then return nil end
    if worker == native.worker then return native.near(index, generation) end
    return far_one(worker, index, generation, id)
  end,
  connections = function(options)
    local found, list = await_reply(far.find, options), {}
    for at = 1, #found, 3 do
      local worker, index, generation = found[at], found[at + 1], found[at + 2]
      -- A connection of this worker may have closed while other workers answered.
      list[#list + 1] = worker == native.worker and native.near(index, generation)
        or worker ~= native.worker and far_one(worker, index, generation, worker .. "." .. index .. "." .. generation)
        or nil
    end
    return list
  end,
}
