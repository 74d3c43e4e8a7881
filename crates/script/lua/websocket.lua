-- `veche.websocket`: connections to other WebSocket servers.
--
-- The object of a connection is created by Rust and owns a table with its state. For the events of an open connection
-- Rust calls `client_message` and `client_closed` one by one, each in a separate coroutine. While one of these calls
-- waits, further events are queued. When the queue of events is full, the socket is no longer read. So a blocking
-- `receive` needs only a bounded queue.
local inner = ...

local client, native, await, try_park = inner.client, inner.native, inner.await, inner.try_park
local new_token, wake, sleep, now = inner.new_token, inner.wake, native.sleep, native.now
local random = native.modules.random.number
local can_wait, cannot_wait, new_line = inner.can_wait, inner.cannot_wait, inner.new_line
local give_way = inner.give_way
local running, status = inner.coroutine_running, inner.coroutine_status
local state_of, raw_close = client.state, client.close
local error, type, pairs, next, math = error, type, pairs, next, math

-- The maximum number of messages that wait for `receive`, and the maximum sum of their bytes. Beyond either limit, the
-- handler of the next message waits.
local QUEUE_MAX, QUEUE_BYTES_MAX = 256, 1048576

local TIMEOUT_MAX = 31536000

-- Maps each disconnected object that will reconnect to the task that will dial again.
local redialing = {}

---------------------------------------------------------------------------------------------------- receiving

local function push(state, data, kind)
  local tail = state.tail + 1
  state.items[tail], state.kinds[tail] = data, kind
  state.tail, state.bytes = tail, state.bytes + #data
end

local function put_back(state, data, kind)
  local head = state.head
  state.items[head], state.kinds[head] = data, kind
  state.head, state.bytes = head - 1, state.bytes + #data
end

local function take(state)
  local head = state.head + 1
  local data, kind = state.items[head], state.kinds[head]
  state.items[head], state.kinds[head] = nil, nil
  state.head, state.bytes = head, state.bytes - #data
  if state.room then
    wake(state.room)
    state.room = nil
  end
  return data, kind
end

local function is_full(state)
  return state.tail - state.head >= QUEUE_MAX or state.bytes >= QUEUE_BYTES_MAX
end

-- Passes a message to the first waiting receiver. If no receiver waits, waits for room in the queue and queues the
-- message.
local function offer(state, data, kind)
  if state.receivers.first then
    local waiter = state.receivers:serve()
    waiter.data, waiter.kind = data, kind
    return
  end
  while is_full(state) and not state.is_left do
    local token = new_token()
    state.room = token
    try_park(token)
  end
  if state.is_left then return end
  -- A receiver may have begun to wait while this function waited for room.
  if state.receivers.first then return offer(state, data, kind) end
  push(state, data, kind)
end

function inner.client_message(ws, data, kind)
  local state = state_of(ws)
  -- Waits until `onopen` has ended, since messages are delivered after it. If the wait itself fails, the failure is
  -- ignored.
  while state.opening and status(state.opening) ~= "dead" do
    local token = sleep(0.05)
    state.opened = token
    try_park(token)
  end
  if state.is_left then return end
  local onmessage = state.onmessage
  if onmessage then return onmessage(ws, data, kind) end
  if state.receivers then return offer(state, data, kind) end
end

---------------------------------------------------------------------------------------------------- dialing

-- Returns the addresses of a host, the best first; or nil and the reason.
local function resolve(host, is_address, seconds)
  if is_address then return { host } end
  -- RFC 6761, section 6.3: `localhost` always is this machine.
  if host == "localhost" then return { "127.0.0.1", "::1" } end
  local ok, addresses = inner.pcall(inner.await_reply, native.resolve, host, { timeout = seconds })
  if ok then return addresses end
  return nil, addresses
end

local function try_dial(ws, state, address, seconds)
  local token, why = client.dial(address, seconds, state.url, state.options)
  if not token then return false, why end
  client.expect(ws, token)
  state.dialing = token
  local ok, protocol = try_park(token)
  state.dialing = nil
  if not ok then
    -- A cancelled waiter needs no connection.
    client.hang_up(token)
    return false, protocol
  end
  state.protocol = protocol or nil
  return true
end

-- Tries one address after the other; returns true, or false and the reason why the last attempt failed.
local function connect(ws, state)
  local host, is_address, seconds = client.check(state.name, state.url, state.options)
  local by = now() + seconds
  state.state = "connecting"
  local addresses, why = resolve(host, is_address, seconds)
  local ok
  for _, address in next, addresses or {} do
    ok, why = try_dial(ws, state, address, math.max(by - now(), 0.001))
    if ok then
      state.state = "open"
      return true
    end
    if why == "cancelled" or state.is_left then break end
  end
  state.state = "closed"
  return false, why
end

---------------------------------------------------------------------------------------------------- callbacks

-- Errors of callbacks are logged, since no caller could receive them.
local function call(f, ...)
  if not f then return end
  local ok, why = inner.xpcall(f, inner.traceback, ...)
  if not ok then native.log("error", why) end
end

-- Returns the number of seconds until the next attempt. It doubles with each attempt. A random part of it keeps clients
-- of the same server from dialing at the same time.
local function pause(state)
  local reconnect = state.reconnect
  local seconds = math.min(reconnect.max, reconnect.min * 2 ^ math.min(state.attempts, 30))
  state.attempts = state.attempts + 1
  return seconds * (0.5 + random() / 2)
end

-- Dials once, and calls `onopen` or `onerror`. Returns true if no further attempt is needed for now.
local function run(ws, state)
  local ok, why = connect(ws, state)
  redialing[ws] = nil
  if ok then
    state.since = now()
    state.opening = running()
    call(state.onopen, ws)
    state.opening = nil
    if state.opened then wake(state.opened) end
    return true
  end
  if state.is_left then return true end
  call(state.onerror, ws, why)
  return false
end

-- Dials until connected. `own` is the task that runs this function; after an error that no pcall catches, the task
-- starts here again.
local function dial_again(ws, state, own)
  while state.dialer == own and not state.is_left and not native.is_retired() do
    if state.dialing then
      client.hang_up(state.dialing)
      state.dialing, state.state = nil, "closed"
    end
    if state.state == "open" then return end
    redialing[ws] = own
    await(sleep, pause(state))
    -- Waits until `onclose` has ended. An error of `onclose` is not reported here.
    while state.closing and status(state.closing) ~= "dead" do await(sleep, 0.05) end
    if run(ws, state) then return end
  end
end

-- Starts the task that dials. If the function `first` is given, the task begins with it, and the limit on tasks may
-- refuse the task. Without `first`, and for later attempts, the limit does not apply, since no other event would start
-- the task again.
local function keep_dialing(ws, state, first)
  local own
  local function go_on() return dial_again(ws, state, own) end
  own = inner.spawn_lasting(go_on, first and function()
    if not first(ws, state) then return go_on() end
  end)
  state.dialer, redialing[ws] = own, own
end

local function redial(ws, state)
  if not state.reconnect or state.is_left or native.is_retired() then return end
  return keep_dialing(ws, state)
end

function inner.client_closed(ws, code, reason)
  local state = state_of(ws)
  state.state, state.code, state.reason = "closed", code, reason
  local receivers = state.receivers
  if receivers then
    while receivers.first do receivers:serve() end
    return
  end
  if not state.onclose and not state.reconnect then return end
  if state.reconnect and now() - state.since >= state.reconnect.max then state.attempts = 0 end
  state.closing = running()
  redial(ws, state)
  call(state.onclose, ws, code, reason)
  state.closing = nil
end

-- Stops all connection objects from connecting again, because newer code has taken over.
function inner.retire_clients()
  for _, task in pairs(redialing) do task:cancel() end
end

---------------------------------------------------------------------------------------------------- objects

local meta, methods = client.meta, {}

local function own(ws, name)
  local state, index, generation = state_of(ws)
  if not state then
    error("bad argument #1 to 'websocket:" .. name .. "': a websocket expected (call it with a colon)", 3)
  end
  return state, index, generation
end

-- For speed, `send` is the C function itself, as for client connections.
methods.send = client.send

function methods.receive(ws, timeout)
  local state = own(ws, "receive")
  local receivers = state.receivers
  if not receivers then error("the messages of a websocket with callbacks go to onmessage, not to websocket:receive", 2) end
  if timeout ~= nil and (type(timeout) ~= "number" or not (timeout >= 0 and timeout <= TIMEOUT_MAX)) then
    error("bad argument #1 to 'websocket:receive': a number of seconds from 0 to " .. TIMEOUT_MAX .. " expected", 2)
  end
  give_way(2)
  if state.tail > state.head then return take(state) end
  if state.state ~= "open" then return nil, state.code, state.reason end
  local waiter = {}
  local ok, why = receivers:wait(waiter, 3, timeout)
  if waiter.data then
    if ok then return waiter.data, waiter.kind end
    -- The receiver was cancelled after it was served, so the message is passed to the next receiver.
    if receivers.first then
      local heir = receivers:serve()
      heir.data, heir.kind = waiter.data, waiter.kind
    else
      put_back(state, waiter.data, waiter.kind)
    end
  end
  if not ok then error(why, 2) end
  if not waiter.is_served then return nil, "timeout" end
  return nil, state.code, state.reason
end

function methods.drain(ws)
  local _, index, generation = own(ws, "drain")
  if not can_wait() then error(cannot_wait(), 2) end
  -- The amount of unsent data is known only after this turn, so this function waits for the next turn.
  await(sleep, 0)
  while true do
    local full = client.is_full(index, generation)
    if full == nil then return nil, "closed" end
    if not full then return true end
    await(client.room, index, generation)
  end
end

local function check_code(code, reason)
  if code ~= nil and not client.is_close_code(code) then
    error("bad argument #1 to 'close': a close code must be 1000 to 1003, 1007 to 1014 or 3000 to 4999", 3)
  end
  if reason ~= nil and (type(reason) ~= "string" or #reason > client.reason_bytes_max) then
    error("bad argument #2 to 'close': a string of at most 123 bytes expected", 3)
  end
end

function methods.close(ws, code, reason)
  local state = own(ws, "close")
  check_code(code, reason)
  if state.is_left then return nil, "closed" end
  local was_open = state.state == "open"
  state.is_left = true
  -- Received messages that were not taken yet are dropped.
  if state.receivers then
    state.items, state.kinds, state.head, state.tail, state.bytes = {}, {}, 0, 0, 0
    if state.room then wake(state.room) end
  end
  local task = redialing[ws]
  if task then
    redialing[ws] = nil
    task:cancel()
    state.state, state.code, state.reason = "closed", code or 1000, reason or ""
    return true
  end
  if not was_open then return nil, "closed" end
  return raw_close(ws, code, reason)
end

local fields = { url = true, protocol = true, state = true }

function meta.__index(ws, key)
  local method = methods[key]
  if method then return method end
  if fields[key] then return (state_of(ws))[key] end
  error("a websocket has no field '" .. tostring(key) .. "'", 2)
end

function meta.__newindex() error("a websocket's fields can't be set", 2) end
function meta.__tostring(ws) return "websocket " .. (state_of(ws)).url end
meta.__metatable = false

---------------------------------------------------------------------------------------------------- the module

local websocket = {}

-- Copies a value, because the script may change its tables afterwards.
local function copy(value, levels)
  if type(value) ~= "table" or levels == 0 then return value end
  local result = {}
  for key, item in pairs(value) do result[key] = copy(item, levels - 1) end
  return result
end

function websocket.connect(url, options)
  client.check("connect", url, options)
  if not can_wait() then error(cannot_wait(), 2) end
  local state = {
    name = "connect", url = url, options = copy(options, 3),
    items = {}, kinds = {}, head = 0, tail = 0, bytes = 0, receivers = new_line(),
  }
  local ws = client.new(state)
  local ok, why = connect(ws, state)
  if not ok then error(why == "cancelled" and why or url .. ": " .. why, 2) end
  return ws
end

local function bad_option(level, name, what)
  error("bad argument #2 to 'websocket.open': " .. name .. ": " .. what .. " expected", level + 2)
end

local function check_reconnect(value)
  if value == nil or value == false then return nil end
  if value == true then return { min = 1, max = 30 } end
  if type(value) ~= "table" then bad_option(2, "reconnect", "true, false or { min =, max = }") end
  local min, max = value.min or 1, value.max or 30
  for key in pairs(value) do
    if key ~= "min" and key ~= "max" then bad_option(2, "reconnect", "a table with only min and max") end
  end
  local is_good = type(min) == "number" and type(max) == "number" and min >= 0.01 and max >= min and max <= 86400
  if not is_good then bad_option(2, "reconnect", "seconds with 0.01 <= min <= max <= 86400") end
  return { min = min, max = max }
end

function websocket.open(url, options)
  if type(options) ~= "table" then
    error("bad argument #2 to 'websocket.open': a table of callbacks and options expected", 2)
  end
  local state, rest = { name = "open", url = url, attempts = 0, since = 0, state = "connecting" }, {}
  for key, value in pairs(options) do
    if key == "onopen" or key == "onmessage" or key == "onerror" or key == "onclose" then
      if type(value) ~= "function" then bad_option(1, key, "a function") end
      state[key] = value
    elseif key ~= "reconnect" then
      rest[key] = copy(value, 2)
    end
  end
  state.reconnect = check_reconnect(options.reconnect)
  client.check("open", url, rest)
  state.options = rest
  local ws = client.new(state)
  if state.reconnect then
    keep_dialing(ws, state, run)
  else
    redialing[ws] = inner.spawn(run, ws, state)
  end
  return ws
end

return { websocket = websocket }
