-- `veche.queue`: objects for queues. Rust stores a queue under a number as long as a guard exists; an object holds
-- the number and the guard.
--
-- The end of a wait removes no value from the queue: the coroutine tries again when it continues. If the coroutine does
-- not continue, the next waiting coroutine is woken.
local inner = ...
local native, class, try_park = inner.native.queue, inner.class, inner.try_park
local can_wait, cannot_wait, now, give_way = inner.can_wait, inner.cannot_wait, inner.native.now, inner.give_way
local push, pop, leave, deadline = native.push, native.pop, native.leave, native.deadline
local error = error

-- Waits after a failed push or pop, with the token that it returned. Returns true, or false and the reason for
-- which the wait has failed.
local function wait(token)
  local ok, why = try_park(token)
  leave(token, ok)
  return ok, why
end

local count = native.count
local methods = {}

function methods.count(handle) return count(handle.number) end

function methods.push(handle, value, timeout)
  local until_s = deadline("queue:push", 2, timeout)
  give_way(2)
  if push(handle.number, value, false) then return true end
  if not can_wait() then error(cannot_wait(), 2) end
  while until_s == nil or now() < until_s do
    local is_in, token = push(handle.number, value, until_s)
    if is_in then return true end
    local ok, why = wait(token)
    if not ok then error(why, 2) end
  end
  if push(handle.number, value, false) then return true end
  return nil, "timeout"
end

function methods.try_push(handle, value)
  return push(handle.number, value, false)
end

function methods.pop(handle, timeout)
  local until_s = deadline("queue:pop", 1, timeout)
  give_way(2)
  local has, value = pop(handle.number, false)
  if has then return value end
  if not can_wait() then error(cannot_wait(), 2) end
  while until_s == nil or now() < until_s do
    has, value = pop(handle.number, until_s)
    if has then return value end
    local ok, why = wait(value)
    if not ok then error(why, 2) end
  end
  has, value = pop(handle.number, false)
  if has then return value end
  return nil, "timeout"
end

function methods.try_pop(handle)
  local _, value = pop(handle.number, false)
  return value
end

local new_queue = class("queue", methods)

local function new(number, guard) return new_queue { number = number, guard = guard } end

return function(...) return new(native.open(...)) end
