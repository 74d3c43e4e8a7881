-- `veche.semaphore`: limits concurrency.
--
-- A returned permit goes to the first waiter; `free` is the number of permits that are not in use. Calls of `with` are listed
-- in `under_way`, because a coroutine that was stopped (for its CPU time or memory) can't return its permit: `reclaim` returns
-- the permits of dead coroutines.
local inner = ...

local new_line, give_way, pcall = inner.new_line, inner.give_way, inner.pcall
local running, status = inner.coroutine_running, inner.coroutine_status
local error, next, setmetatable, type = error, next, setmetatable, type

local PERMITS_MAX = 2 ^ 53

local Semaphore = {}
Semaphore.__index = Semaphore
Semaphore.__metatable = false

-- Calls of `with`, each with its semaphore and its coroutine.
local under_way = {}

local function check(self, name)
  if type(self) ~= "table" or self.permits == nil then
    error("bad argument #1 to 'semaphore:" .. name .. "': a semaphore expected (call it with a colon)", 3)
  end
end

local function give_back(self)
  if self.line.first then
    self.line:serve()
  else
    self.free = self.free + 1
  end
end

local function acquire(self)
  give_way(3)
  if self.free > 0 then
    self.free = self.free - 1
    return
  end
  local waiter = {}
  local ok, why = self.line:wait(waiter, 4)
  if not ok then
    if waiter.is_served then give_back(self) end
    error(why, 3)
  end
end

function Semaphore:acquire()
  check(self, "acquire")
  acquire(self)
end

function Semaphore:try_acquire()
  check(self, "try_acquire")
  if self.free == 0 then return false end
  self.free = self.free - 1
  return true
end

function Semaphore:release()
  check(self, "release")
  if self.free >= self.permits then error("the semaphore was released more often than acquired", 2) end
  give_back(self)
end

function Semaphore:available()
  check(self, "available")
  return self.free
end

local function leave(self, call, ok, ...)
  if under_way[call] then
    under_way[call] = nil
    give_back(self)
  end
  if ok then return ... end
  error((...), 0)
end

function Semaphore:with(f, ...)
  check(self, "with")
  if type(f) ~= "function" then error("bad argument #1 to 'semaphore:with': a function expected", 2) end
  local call = { semaphore = self, coroutine = running() }
  acquire(self)
  under_way[call] = true
  return leave(self, call, pcall(f, ...))
end

-- Returns the permits of calls whose coroutine has failed.
function inner.reclaim()
  local call = next(under_way)
  while call do
    local following = next(under_way, call)
    if call.coroutine and status(call.coroutine) == "dead" then
      under_way[call] = nil
      give_back(call.semaphore)
    end
    call = following
  end
end

return function(permits)
  if type(permits) ~= "number" or not (permits >= 1 and permits <= PERMITS_MAX and permits % 1 == 0) then
    error("bad argument #1 to 'semaphore': a whole number of at least 1 expected", 2)
  end
  return setmetatable({ permits = permits, free = permits, line = new_line() }, Semaphore)
end
