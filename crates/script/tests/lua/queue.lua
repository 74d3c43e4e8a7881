local check = require "check"
local veche = require "veche"

local t = {}

function t.values_come_out_as_they_went_in()
  local queue = veche.queue("values")
  local values = { "text", "\0\255", 7, 0.5, true, false, "" }
  for _, value in ipairs(values) do check.equal(queue:push(value), true) end
  check.equal(queue:count(), #values)
  for _, value in ipairs(values) do check.equal(queue:pop(), value) end
  queue:push { name = "ann", list = { 1, 2 } }
  local back = queue:pop()
  check.equal(back.name .. #back.list, "ann2")
  check.equal(queue:try_pop(), nil)
end

function t.a_name_is_one_queue()
  veche.queue("same", { capacity = 5 }):push(1)
  check.equal(veche.queue("same"):pop(), 1)
end

function t.other_options_hold_from_then_on()
  local queue = veche.queue("resized", { capacity = 1 })
  queue:push(1)
  check.equal(queue:try_push(2), false)
  local task = veche.spawn(function() return queue:push(2) end)
  veche.sleep(0.01)
  check.equal(veche.queue("resized"):count(), 1)
  veche.queue("resized", { capacity = 3 })
  check.equal(task:join(), true)
  check.equal(queue:try_push(3), true)
  check.equal(queue:try_push(4), false)
  veche.queue("resized", { capacity = 1 })
  for i = 1, 3 do
    check.equal(queue:try_push(4), false)
    check.equal(queue:pop(), i)
  end
end

function t.queues_that_nobody_has_are_forgotten()
  for i = 1, 5000 do
    local name = "room " .. i
    veche.queue(name):push(i)
    check.equal(veche.queue(name):pop(), i)
    if i % 100 == 0 then for _ = 1, 100 do collectgarbage("step") end end
  end
end

function t.takers_wait_in_order()
  local queue, seen = veche.queue("takers"), {}
  local tasks = {}
  for i = 1, 3 do
    tasks[i] = veche.spawn(function()
      local value = queue:pop()
      seen[#seen + 1] = i .. value
    end)
    veche.sleep(0.001)
  end
  for _, value in ipairs { "a", "b", "c" } do queue:push(value) end
  for i = 1, 3 do tasks[i]:join() end
  check.equal(table.concat(seen, " "), "1a 2b 3c")
end

function t.givers_wait_for_room()
  local queue, given = veche.queue("givers", { capacity = 2 }), 0
  local task = veche.spawn(function()
    for i = 1, 10 do
      queue:push(i)
      given = given + 1
    end
  end)
  veche.sleep(0.01)
  check.equal(given, 2)
  check.equal(queue:try_push(0), false)
  for i = 1, 10 do check.equal(queue:pop(), i) end
  task:join()
  check.equal(queue:count(), 0)
end

function t.waits_have_an_end()
  local queue = veche.queue("ends", { capacity = 1 })
  local began = veche.time.monotonic()
  local value, why = queue:pop(0.5)
  check.equal(value, nil)
  check.equal(why, "timeout")
  check.is_true(veche.time.monotonic() - began >= 0.5)
  check.equal(select(2, queue:pop(0)), "timeout")
  queue:push(1)
  local pushed
  pushed, why = queue:push(2, 0.5)
  check.equal(pushed, nil)
  check.equal(why, "timeout")
  -- An element that arrives in time is returned.
  queue:pop()
  veche.timer.after(0.2, function() queue:push("late") end)
  check.equal(queue:pop(0.5), "late")
end

function t.who_is_cancelled_loses_nothing()
  local queue, seen = veche.queue("cancelled"), {}
  local first = veche.spawn(function() seen[1] = queue:pop() end)
  veche.sleep(0.001)
  local second = veche.spawn(function() seen[2] = queue:pop() end)
  veche.sleep(0.001)
  -- The first task is woken for an element, and cancelled before it takes the element.
  queue:push("x")
  first:cancel()
  check.fails("cancelled", first.join, first)
  second:join()
  check.equal(seen[1], nil)
  check.equal(seen[2], "x")
  local third = veche.spawn(function() queue:pop() end)
  veche.sleep(0.001)
  third:cancel()
  queue:push("y")
  check.equal(queue:pop(), "y")
end

function t.it_waits_only_where_it_has_to()
  local queue = veche.queue("callback", { capacity = 1 })
  queue:push "y"
  check.equal((("x"):gsub("x", function() return queue:pop() end)), "y")
  check.fails("can't wait here", string.gsub, "x", "x", function()
    local value = queue:pop()
    return value
  end)
  ;("x"):gsub("x", function() queue:push(1) end)
  check.fails("can't wait here", string.gsub, "x", "x", function() queue:push(2) end)
end

function t.bad_arguments()
  check.fails("bad argument #1 to 'queue': a string expected", veche.queue)
  check.fails("a name must have 1 to 255 bytes", veche.queue, "")
  check.fails("bad argument #2 to 'queue': a table of options expected", veche.queue, "x", 7)
  for _, capacity in ipairs { 0, -1, 0.5, 1e9, 0 / 0, "1" } do
    check.fails("capacity: a whole number from 1 to 1000000", veche.queue, "x", { capacity = capacity })
  end
  check.fails("bytes_max: a whole number of at least 1024", veche.queue, "x", { bytes_max = 1 })
  check.fails("the options are capacity and bytes_max", veche.queue, "x", { size = 1 })
  local queue = veche.queue("bad", { bytes_max = 1024 })
  check.fails("bad argument #1 to 'queue:push': a string, a number", queue.push, queue)
  check.fails("bad argument #1 to 'queue:push': a string, a number", queue.push, queue, print)
  check.fails("the value is larger than the queue's 1024 bytes", queue.push, queue, ("x"):rep(1024))
  check.fails("bad argument #2 to 'queue:push': a number of seconds from 0", queue.push, queue, 1, -1)
  check.fails("bad argument #1 to 'queue:pop': a number of seconds from 0", queue.pop, queue, "1")
  check.fails("bad argument #1 to 'queue:pop': a number of seconds from 0", queue.pop, queue, 0 / 0)
  check.fails("a queue expected (call it with a colon)", queue.pop, 1)
  check.survives(2, veche.queue, "strange", {})
  local roomy = veche.queue("roomy", { capacity = 1000 })
  check.survives(2, function(...) return roomy:push(...) end, 1, 0)
  check.survives(1, function(timeout) return roomy:pop(timeout) end, 0)
end

return t
