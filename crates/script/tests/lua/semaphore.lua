-- `veche.semaphore`
local veche = require "veche"
local check = require "check"
local t = {}

function t.at_most_so_many_at_once()
  local semaphore, group, inside, most = veche.semaphore(3), veche.waitgroup(), 0, 0
  for _ = 1, 20 do
    group:add()
    veche.spawn(function()
      semaphore:with(function()
        inside = inside + 1
        most = math.max(most, inside)
        veche.sleep(1)
        inside = inside - 1
      end)
      group:done()
    end)
  end
  group:wait()
  check.equal(most, 3)
  check.equal(semaphore:available(), 3)
end

function t.permits_go_in_order()
  local semaphore, order = veche.semaphore(1), {}
  semaphore:acquire()
  check.equal(semaphore:try_acquire(), false)
  for i = 1, 4 do
    veche.spawn(function()
      semaphore:acquire()
      order[#order + 1] = i
      semaphore:release()
    end)
  end
  veche.sleep(0)
  semaphore:release()
  -- A task that comes later does not overtake the waiting tasks.
  check.equal(semaphore:try_acquire(), false)
  veche.sleep(1)
  check.equal(table.concat(order), "1234")
  check.equal(semaphore:try_acquire(), true)
end

function t.with_gives_results_and_errors_as_they_are()
  local semaphore = veche.semaphore(1)
  local a, b, c = semaphore:with(function(x, y) return x, nil, y end, 1, 3)
  check.equal(a, 1)
  check.equal(b, nil)
  check.equal(c, 3)
  local thrown = {}
  local ok, caught = pcall(function() semaphore:with(function() error(thrown) end) end)
  check.equal(ok, false)
  check.equal(caught, thrown)
  check.fails("bad argument #1 to 'sleep'", function() semaphore:with(veche.sleep, -1) end)
  check.equal(semaphore:available(), 1)
end

function t.a_cancelled_task_keeps_no_permit()
  local semaphore = veche.semaphore(1)
  -- A task is cancelled while it waits for a permit, and another task waits behind it.
  semaphore:acquire()
  local first = veche.spawn(function() semaphore:acquire() end)
  local second = veche.spawn(function() semaphore:acquire() return "served" end)
  veche.sleep(0)
  first:cancel()
  semaphore:release()
  check.fails("cancelled", first.join, first)
  check.equal(second:join(), "served")
  semaphore:release()
  check.equal(semaphore:available(), 1)
  -- The only waiting task is cancelled.
  semaphore:acquire()
  local third = veche.spawn(function() semaphore:with(print, "never") end)
  veche.sleep(0)
  third:cancel()
  semaphore:release()
  check.fails("cancelled", third.join, third)
  check.equal(semaphore:available(), 1)
  -- A task is cancelled while it holds a permit.
  local fourth = veche.spawn(function() semaphore:with(veche.sleep, 100) end)
  veche.sleep(0)
  check.equal(semaphore:available(), 0)
  fourth:cancel()
  check.fails("cancelled", fourth.join, fourth)
  check.equal(semaphore:available(), 1)
end

function t.a_runaway_keeps_no_permit()
  local semaphore = veche.semaphore(1)
  for _, run in ipairs {
    function() while true do end end,
    function() coroutine.wrap(function() while true do end end)() end,
  } do
    local runaway = veche.spawn(function() semaphore:with(run) end)
    local behind = veche.spawn(function() semaphore:acquire() return "served" end)
    check.fails("ran too long", runaway.join, runaway)
    check.equal(behind:join(), "served")
    semaphore:release()
    check.equal(semaphore:available(), 1)
  end
  local inside = veche.spawn(function()
    coroutine.wrap(function() semaphore:with(function() while true do end end) end)()
  end)
  check.fails("ran too long", inside.join, inside)
  check.equal(semaphore:available(), 1)
end

function t.bad_calls()
  for _, bad in ipairs { 0, -1, 0.5, "x", {}, 0 / 0, 1 / 0 } do
    check.fails("bad argument #1 to 'semaphore'", veche.semaphore, bad)
  end
  check.fails("bad argument #1 to 'semaphore'", veche.semaphore)
  local semaphore = veche.semaphore(1)
  check.fails("released more often", semaphore.release, semaphore)
  check.fails("bad argument #1 to 'semaphore:with'", semaphore.with, semaphore, 5)
  for _, name in ipairs { "acquire", "try_acquire", "release", "available", "with" } do
    check.fails("bad argument #1 to 'semaphore:" .. name .. "': a semaphore expected", semaphore[name], {})
    check.fails("a semaphore expected", semaphore[name])
  end
  semaphore:acquire()
  check.fails("can't wait here", string.gsub, "a", "a", function() semaphore:acquire() end)
  check.fails("can't wait here", string.gsub, "a", "a", function() semaphore:with(print) end)
  semaphore:release()
  check.equal(semaphore:available(), 1)
  check.survives(1, veche.semaphore)
  for _, name in ipairs { "try_acquire", "release", "available", "with" } do
    check.survives(3, semaphore[name], veche.semaphore(1000), tostring, 1)
  end
end

return t
