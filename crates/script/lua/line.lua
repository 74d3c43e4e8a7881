-- A FIFO queue of waiting coroutines. A cancelled coroutine is removed from it.
--
-- A value passed to the first coroutine of a queue belongs to that coroutine at once, before it runs. If the coroutine is
-- cancelled before it runs, `Line:wait` reports this, and its caller passes the value on, so no value is lost.
local inner = ...

local try_park, new_token, wake = inner.try_park, inner.new_token, inner.wake
local can_wait, cannot_wait = inner.can_wait, inner.cannot_wait
local sleep, now = inner.native.sleep, inner.native.now
local error, math, setmetatable = error, math, setmetatable

local Line = {}
Line.__index = Line

local function leave(line, waiter)
  local before, behind = waiter.before, waiter.behind
  if before then before.behind = behind else line.first = behind end
  if behind then behind.before = before else line.last = before end
  waiter.before, waiter.behind = nil, nil
end

-- Waits until `waiter`, a table provided by the caller, is served, or until `seconds` have passed. Returns true, or
-- false and the reason if the wait has failed. `waiter.is_served` tells in each case whether the waiter was served.
-- Raises an error at `level` if the caller can't wait.
function Line:wait(waiter, level, seconds)
  if not can_wait() then error(cannot_wait(), level) end
  local last = self.last
  if last then
    last.behind, waiter.before = waiter, last
  else
    self.first = waiter
  end
  self.last = waiter
  local by = seconds and now() + seconds
  while true do
    local token = by and sleep(math.max(by - now(), 0)) or new_token()
    waiter.token = token
    local ok, why = try_park(token)
    if not ok then
      if not waiter.is_served then leave(self, waiter) end
      return false, why
    end
    -- If the waiter is not served, the coroutine that resumed this one was stopped before it could
    -- serve the waiter.
    if waiter.is_served then return true end
    if by and now() >= by then
      leave(self, waiter)
      return true
    end
  end
end

-- Serves the first waiter of the queue: removes it and resumes its coroutine soon.
function Line:serve()
  local waiter = self.first
  wake(waiter.token)
  leave(self, waiter)
  waiter.is_served = true
  return waiter
end

inner.new_line = function() return setmetatable({}, Line) end
