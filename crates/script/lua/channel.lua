-- `veche.channel`: passes values between coroutines, in order and with back pressure.
--
-- The buffered values are in `items` from index `head` on; their number is `count`. The value of a coroutine that waits to send
-- is stored in its waiter.
local inner = ...

local new_line, give_way = inner.new_line, inner.give_way
local error, setmetatable, type = error, setmetatable, type

local CAPACITY_MAX = 1000000

local Channel = {}
Channel.__index = Channel
Channel.__metatable = false

local function check(self, name)
  if type(self) ~= "table" or self.receivers == nil then
    error("bad argument #1 to 'channel:" .. name .. "': a channel expected (call it with a colon)", 3)
  end
end

local function check_value(value, name)
  if value == nil then
    error("bad argument #1 to 'channel:" .. name .. "': nil can't be sent: a closed channel returns it", 3)
  end
end

local function push(self, value)
  self.items[self.head + self.count] = value
  self.count = self.count + 1
end

local function take(self)
  local head = self.head
  local value = self.items[head]
  self.items[head] = nil
  self.head, self.count = head + 1, self.count - 1
  return value
end

-- Passes a value to a waiting receiver, or appends it to the buffered ones.
local function offer(self, value)
  if self.receivers.first then
    self.receivers:serve().value = value
    return true
  end
  if self.count < self.capacity then
    push(self, value)
    return true
  end
  return false
end

-- Takes the next value from the buffered ones, or from a waiting sender.
local function poll(self)
  local senders = self.senders
  if self.count == 0 then
    if senders.first then return senders:serve().value end
    return nil
  end
  local value = take(self)
  if senders.first and self.count < self.capacity then push(self, senders:serve().value) end
  return value
end

-- Takes back a value that was passed to a receiver that was then cancelled. It becomes the next value again.
local function put_back(self, value)
  if self.receivers.first then
    self.receivers:serve().value = value
    return
  end
  self.head, self.count = self.head - 1, self.count + 1
  self.items[self.head] = value
end

function Channel:send(value)
  check(self, "send")
  check_value(value, "send")
  give_way(2)
  if self.is_closed then return nil, "closed" end
  if offer(self, value) then return true end
  local waiter = { value = value }
  local ok, why = self.senders:wait(waiter, 3)
  if not ok then error(why, 2) end
  if waiter.is_refused then return nil, "closed" end
  return true
end

function Channel:try_send(value)
  check(self, "try_send")
  check_value(value, "try_send")
  if self.is_closed then return nil, "closed" end
  if offer(self, value) then return true end
  return nil, "full"
end

function Channel:receive()
  check(self, "receive")
  give_way(2)
  local value = poll(self)
  if value ~= nil then return value end
  if self.is_closed then return nil, "closed" end
  local waiter = {}
  local ok, why = self.receivers:wait(waiter, 3)
  value = waiter.value
  if not ok then
    if value ~= nil then put_back(self, value) end
    error(why, 2)
  end
  if value == nil then return nil, "closed" end
  return value
end

function Channel:try_receive()
  check(self, "try_receive")
  local value = poll(self)
  if value ~= nil then return value end
  return nil, self.is_closed and "closed" or "empty"
end

function Channel:values()
  check(self, "values")
  return Channel.receive, self
end

function Channel:close()
  check(self, "close")
  if self.is_closed then return false end
  self.is_closed = true
  while self.receivers.first do self.receivers:serve() end
  while self.senders.first do self.senders:serve().is_refused = true end
  return true
end

function Channel:length()
  check(self, "length")
  return self.count
end

return function(capacity)
  if capacity == nil then capacity = 0 end
  if type(capacity) ~= "number" or not (capacity >= 0 and capacity <= CAPACITY_MAX and capacity % 1 == 0) then
    error("bad argument #1 to 'channel': a whole number from 0 to " .. CAPACITY_MAX .. " expected", 2)
  end
  return setmetatable({
    capacity = capacity, items = {}, head = 1, count = 0, is_closed = false,
    senders = new_line(), receivers = new_line(),
  }, Channel)
end
