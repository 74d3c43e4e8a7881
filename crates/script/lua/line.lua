-- A queue of waiting coroutines, first in, first out. A cancelled one leaves it.
--
-- A value passed to the first of a queue belongs to that coroutine from then on, before it runs. If it is cancelled in
-- between, `Line:wait` reports that, and its caller passes the value on: nothing is lost that way.
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

-- Waits until the waiter, a table of the caller's, is served, or for `seconds`. Returns true, or false and the reason why
-- it stopped waiting; `waiter.is_served` is set if it was served. Raises an error at `level` where nothing can wait.
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
    -- Otherwise the coroutine that woke it was stopped before it could serve.
    if waiter.is_served then return true end
    if by and now() >= by then
      leave(self, waiter)
      return true
    end
  end
end

-- Serves the first of the queue: it is removed, and continues soon.
function Line:serve()
  local waiter = self.first
  wake(waiter.token)
  leave(self, waiter)
  waiter.is_served = true
  return waiter
end

inner.new_line = function() return setmetatable({}, Line) end
