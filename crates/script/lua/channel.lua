-- `veche.channel`: passes values between coroutines, in order and with back pressure.
--
-- The buffered values are in a linked list of blocks, from index `head` of the `first` block up to index `tail` of the `last`
-- one; their number is `count`. One table of up to a million values would be resized in a single step of 0.1 s. The value of a
-- coroutine that waits to send is stored in its waiter.
local inner = ...

local new_line, give_way = inner.new_line, inner.give_way
local error, setmetatable, type = error, setmetatable, type

local CAPACITY_MAX = 1000000
local BLOCK_SIZE = 1024

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
  local tail = self.tail + 1
  if tail > BLOCK_SIZE then
    local block = {}
    self.last.next = block
    self.last, tail = block, 1
  end
  self.last[tail] = value
  self.tail, self.count = tail, self.count + 1
end

local function take(self)
  local first, head = self.first, self.head
  local value = first[head]
  first[head] = nil
  self.count = self.count - 1
  if self.count == 0 then
    self.first, self.head, self.tail = self.last, 1, 0
  elseif head == BLOCK_SIZE then
    self.first, self.head = first.next, 1
  else
    self.head = head + 1
  end
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

-- Takes back a value whose receiver was cancelled before it got the value. The value becomes the first in the queue.
local function put_back(self, value)
  if self.receivers.first then
    self.receivers:serve().value = value
    return
  end
  if self.head == 1 then
    self.first, self.head = { next = self.first }, BLOCK_SIZE + 1
  end
  self.head, self.count = self.head - 1, self.count + 1
  self.first[self.head] = value
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
  local block = {}
  return setmetatable({
    capacity = capacity, first = block, last = block, head = 1, tail = 0, count = 0, is_closed = false,
    senders = new_line(), receivers = new_line(),
  }, Channel)
end
