-- `veche.queue`: waiting at what Rust keeps under a number.
--
-- A wait that ends takes nothing along: whoever goes on tries again, and whoever does not says so, for the next in line.
local inner = ...
local native, class, try_park = inner.native.queue, inner.class, inner.try_park
local can_wait, cannot_wait, now, give_way = inner.can_wait, inner.cannot_wait, inner.native.now, inner.give_way
local push, pop, leave, deadline = native.push, native.pop, native.leave, native.deadline
local error = error

-- Waits with the token of a try: true, or false and why not.
local function wait(token)
  local ok, why = try_park(token)
  leave(token, ok)
  return ok, why
end

local methods = { count = native.count }

function methods.push(number, value, timeout)
  local until_s = deadline("queue:push", 2, timeout)
  give_way(2)
  if push(number, value, false) then return true end
  if not can_wait() then error(cannot_wait(), 2) end
  while until_s == nil or now() < until_s do
    local is_in, token = push(number, value, until_s)
    if is_in then return true end
    local ok, why = wait(token)
    if not ok then error(why, 2) end
  end
  if push(number, value, false) then return true end
  return nil, "timeout"
end

function methods.try_push(number, value)
  return push(number, value, false)
end

function methods.pop(number, timeout)
  local until_s = deadline("queue:pop", 1, timeout)
  give_way(2)
  local has, value = pop(number, false)
  if has then return value end
  if not can_wait() then error(cannot_wait(), 2) end
  while until_s == nil or now() < until_s do
    has, value = pop(number, until_s)
    if has then return value end
    local ok, why = wait(value)
    if not ok then error(why, 2) end
  end
  has, value = pop(number, false)
  if has then return value end
  return nil, "timeout"
end

function methods.try_pop(number)
  local _, value = pop(number, false)
  return value
end

local new_queue = class("queue", methods)

return function(...) return new_queue(native.open(...)) end
