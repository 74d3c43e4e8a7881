-- `veche.channel`
local veche = require "veche"
local check = require "check"
local t = {}

function t.values_come_in_order_and_never_more_than_fit()
  local channel, sent = veche.channel(2), 0
  veche.spawn(function()
    for i = 1, 10 do
      check.equal(channel:send(i), true)
      sent = i
    end
    channel:close()
  end)
  veche.sleep(1)
  check.equal(sent, 2)
  check.equal(channel:length(), 2)
  local expected = 0
  for value in channel:values() do
    expected = expected + 1
    check.equal(value, expected)
  end
  check.equal(expected, 10)
end

function t.many_values_come_in_order()
  local channel, sent, received = veche.channel(100000), 0, 0
  for round = 1, 30 do
    for _ = 1, 1000 + round do
      sent = sent + 1
      check.equal(channel:try_send(sent), true)
    end
    -- Every tenth round empties the channel; in between, its values fill several blocks.
    local count = round % 10 == 0 and channel:length() or 300
    for _ = 1, count do
      received = received + 1
      check.equal(channel:try_receive(), received)
    end
    check.equal(channel:length(), sent - received)
  end
  check.equal(select(2, channel:try_receive()), "empty")
  check.equal(received, sent)
end

function t.without_capacity_both_meet()
  local channel = veche.channel()
  local sender = veche.spawn(function() return channel:send("x") end)
  veche.sleep(1)
  check.equal(channel:length(), 0)
  check.equal(channel:receive(), "x")
  check.equal(sender:join(), true)
  local receiver = veche.spawn(function() return channel:receive() end)
  veche.sleep(1)
  check.equal(channel:send(false), true)
  check.equal(receiver:join(), false)
end

function t.trying_never_waits()
  local channel = veche.channel(1)
  local value, why = channel:try_receive()
  check.equal(value, nil)
  check.equal(why, "empty")
  check.equal(channel:try_send(1), true)
  check.equal(select(2, channel:try_send(2)), "full")
  check.equal(channel:try_receive(), 1)
  local none = veche.channel(0)
  check.equal(select(2, none:try_send(1)), "full")
  local receiver = veche.spawn(function() return none:receive() end)
  veche.sleep(0)
  check.equal(none:try_send(1), true)
  check.equal(receiver:join(), 1)
  local sender = veche.spawn(function() none:send(2) end)
  veche.sleep(0)
  check.equal(none:try_receive(), 2)
  sender:join()
end

function t.whoever_waits_is_served_in_order()
  local channel, order = veche.channel(), {}
  local tasks = {}
  for i = 1, 5 do
    tasks[i] = veche.spawn(function()
      local letter = channel:receive()
      order[#order + 1] = i .. letter
    end)
  end
  veche.sleep(0)
  for _, letter in ipairs { "a", "b", "c", "d", "e" } do channel:send(letter) end
  for i = 1, 5 do tasks[i]:join() end
  check.equal(table.concat(order, " "), "1a 2b 3c 4d 5e")
end

function t.a_closed_channel_gives_what_it_has()
  local channel = veche.channel(2)
  channel:send(1)
  channel:send(2)
  local refused = veche.spawn(function() return select(2, channel:send(3)) end)
  veche.sleep(0)
  check.equal(channel:close(), true)
  check.equal(channel:close(), false)
  check.equal(refused:join(), "closed")
  check.equal(select(2, channel:send(4)), "closed")
  check.equal(select(2, channel:try_send(4)), "closed")
  check.equal(channel:receive(), 1)
  check.equal(channel:receive(), 2)
  local value, why = channel:receive()
  check.equal(value, nil)
  check.equal(why, "closed")
  check.equal(select(2, channel:try_receive()), "closed")
end

function t.closing_wakes_all_who_wait()
  local channel, tasks = veche.channel(), {}
  for i = 1, 3 do
    tasks[i] = veche.spawn(function() return select(2, channel:receive()) end)
  end
  veche.sleep(0)
  channel:close()
  for i = 1, 3 do check.equal(tasks[i]:join(), "closed") end
end

function t.a_cancelled_receiver_loses_no_value()
  for _, capacity in ipairs { 0, 1, 3 } do
    local channel = veche.channel(capacity)
    local first = veche.spawn(function() return channel:receive() end)
    local second = veche.spawn(function() return channel:receive() end)
    veche.sleep(0)
    -- The first receiver is cancelled before the value is sent, so the second one gets the value.
    first:cancel()
    channel:send("one")
    check.fails("cancelled", first.join, first)
    check.equal(second:join(), "one")
    -- A value sent after the only receiver was cancelled goes to the next receiver.
    local third = veche.spawn(function() return channel:receive() end)
    veche.sleep(0)
    third:cancel()
    channel:send("two")
    check.fails("cancelled", third.join, third)
    local behind = veche.spawn(function() channel:send("three") end)
    veche.sleep(0)
    check.equal(channel:receive(), "two")
    check.equal(channel:receive(), "three")
    behind:join()
    -- If the value is sent before the receiver is cancelled, the receiver gets it.
    local fourth = veche.spawn(function() return channel:receive() end)
    veche.sleep(0)
    channel:send("four")
    fourth:cancel()
    check.equal(fourth:join(), "four")
    check.equal(channel:length(), 0)
  end
end

function t.a_cancelled_sender_sends_nothing()
  local channel = veche.channel(1)
  channel:send(1)
  local first = veche.spawn(function() channel:send(2) end)
  local second = veche.spawn(function() channel:send(3) end)
  veche.sleep(0)
  first:cancel()
  check.fails("cancelled", first.join, first)
  check.equal(channel:receive(), 1)
  check.equal(channel:receive(), 3)
  second:join()
  check.equal(channel:length(), 0)
end

function t.a_cancelled_wait_can_be_caught_and_the_channel_used_again()
  local channel = veche.channel()
  local task = veche.spawn(function()
    local ok, why = pcall(function() channel:receive() end)
    check.equal(ok, false)
    check.is_true(why:find("cancelled", 1, true))
    return channel:receive()
  end)
  veche.sleep(0)
  task:cancel()
  veche.sleep(0)
  channel:send("late")
  check.equal(task:join(), "late")
end

function t.nothing_is_lost_or_doubled_whatever_is_cancelled()
  local seed = 7
  local function random(n)
    seed = (seed * 1103515245 + 12345) % 2147483648
    return math.floor(seed / 65536) % n
  end
  for round = 1, 20 do
    local channel, seen, sent, tasks = veche.channel(random(3)), {}, {}, {}
    local function worker()
      while true do
        local value = channel:receive()
        if value == nil then return end
        seen[value] = (seen[value] or 0) + 1
        if random(3) == 0 then veche.sleep(0) end
      end
    end
    for i = 1, 8 do tasks[i] = veche.spawn(worker) end
    local sender = veche.spawn(function()
      for i = 1, 50 do
        channel:send(i)
        sent[#sent + 1] = i
        if random(4) == 0 then veche.sleep(0) end
      end
    end)
    for _ = 1, 10 do
      veche.sleep(0)
      local place = 1 + random(8)
      tasks[place]:cancel()
      tasks[place] = veche.spawn(worker)
    end
    sender:join()
    channel:close()
    for i = 1, 8 do tasks[i]:join() end
    for i = 1, 50 do
      if seen[i] ~= 1 then error("round " .. round .. ": value " .. i .. " came " .. tostring(seen[i]) .. " times") end
    end
  end
end

function t.a_coroutine_of_the_scripts_own_can_wait()
  local channel = veche.channel()
  local next_value = coroutine.wrap(function()
    for value in channel:values() do coroutine.yield(value) end
    return "end"
  end)
  veche.spawn(function()
    channel:send(1)
    channel:send(2)
    channel:close()
  end)
  check.equal(next_value(), 1)
  check.equal(next_value(), 2)
  check.equal(next_value(), "end")
end

function t.where_nothing_can_wait_it_says_so()
  local channel = veche.channel()
  check.fails("can't wait here", string.gsub, "a", "a", function() channel:receive() end)
  check.fails("can't wait here", string.gsub, "a", "a", function() channel:send(1) end)
  -- A coroutine created in a callback of `string.gsub` can't wait, however deeply it is nested.
  check.fails("can't wait here", string.gsub, "a", "a", function()
    coroutine.wrap(function()
      coroutine.wrap(function() channel:receive() end)()
    end)()
  end)
  -- A coroutine that was resumed in a callback can wait if it is resumed elsewhere later.
  local moved = coroutine.wrap(function()
    coroutine.yield(1)
    veche.sleep(1)
    return 2
  end)
  string.gsub("a", "a", function() moved() end)
  check.equal(moved(), 2)
  -- The failed calls of `receive` have left no receiver in the channel's queue.
  check.equal(select(2, channel:try_send(1)), "full")
  check.equal(select(2, channel:try_receive()), "empty")
end

function t.bad_arguments()
  for _, bad in ipairs { -1, 0.5, "x", {}, 1e9, 0 / 0, 1 / 0 } do
    check.fails("bad argument #1 to 'channel'", veche.channel, bad)
  end
  local channel = veche.channel(1)
  check.fails("bad argument #1 to 'channel:send': nil", channel.send, channel, nil)
  check.fails("bad argument #1 to 'channel:try_send': nil", channel.try_send, channel, nil)
  for _, name in ipairs { "send", "try_send", "receive", "try_receive", "values", "close", "length" } do
    for _, bad in ipairs { 5, "x", {}, print } do
      check.fails("bad argument #1 to 'channel:" .. name .. "': a channel expected", channel[name], bad)
    end
    check.fails("a channel expected", channel[name])
  end
  check.equal(getmetatable(channel), false)
  check.survives(1, veche.channel)
  for _, name in ipairs { "try_send", "try_receive", "length", "values", "close" } do
    check.survives(2, channel[name], veche.channel(1000), 1)
  end
end

return t
