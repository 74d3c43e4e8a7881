-- `veche.waitgroup`
local veche = require "veche"
local check = require "check"
local t = {}

function t.waits_for_all()
  local group, ended = veche.waitgroup(), 0
  group:wait()
  for i = 1, 10 do
    group:add()
    veche.spawn(function()
      veche.sleep(i)
      ended = ended + 1
      group:done()
    end)
  end
  local other = veche.spawn(function()
    group:wait()
    return ended
  end)
  group:wait()
  check.equal(ended, 10)
  check.equal(other:join(), 10)
  -- After a group has become empty, it can be used again.
  group:add(2)
  group:add(-1)
  veche.spawn(group.done, group)
  group:wait()
end

function t.a_cancelled_waiter_leaves()
  local group = veche.waitgroup()
  group:add()
  local first = veche.spawn(function() group:wait() end)
  local second = veche.spawn(function() group:wait() return "served" end)
  veche.sleep(0)
  first:cancel()
  group:done()
  check.fails("cancelled", first.join, first)
  check.equal(second:join(), "served")
end

function t.bad_calls()
  local group = veche.waitgroup()
  check.fails("more done than added", group.done, group)
  for _, bad in ipairs { 0.5, "x", {}, 1e300, 0 / 0 } do
    check.fails("bad argument #1 to 'waitgroup:add'", group.add, group, bad)
  end
  check.fails("bad argument #1 to 'waitgroup:wait': a waitgroup expected", group.wait)
  check.fails("a waitgroup expected", group.add, {}, 1)
  check.fails("a waitgroup expected", group.done, 5)
  check.survives(2, group.add, veche.waitgroup(), 1)
  check.survives(2, group.done, veche.waitgroup(), 1)
  group:add()
  check.fails("can't wait here", string.gsub, "a", "a", function() group:wait() end)
end

return t
