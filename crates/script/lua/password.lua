-- `veche.password`. If too many calls are queued, the functions return nil and the reason instead of raising an error, because
-- the handler has to respond anyway.
local inner = ...

local native, outcome, try_park = inner.native.password, inner.native.outcome, inner.try_park
local can_wait, cannot_wait, error = inner.can_wait, inner.cannot_wait, error

local function finish(ok, reply, kind)
  if ok then return reply end
  if kind == "refused" then return nil, "busy" end
  error(reply, 2)
end

local function call(begin)
  return function(...)
    if not can_wait() then error(cannot_wait(), 2) end
    local token = begin(...)
    local ok, why = try_park(token)
    if not ok then error(why, 2) end
    return finish(outcome(token))
  end
end

return { password = { hash = call(native.hash), verify = call(native.verify) } }
