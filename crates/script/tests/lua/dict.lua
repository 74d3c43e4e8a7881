-- `veche.dict` and `veche.counter`
local veche = require "veche"
local check = require "check"
local t = {}

function t.values_of_all_kinds()
  local dict = veche.dict("kinds")
  for _, value in ipairs { true, 0, -0.5, 1 / 0, "", "text", "\0\255", ("x"):rep(1000000) } do
    dict:set("k", value)
    check.equal(dict:get("k"), value)
  end
  dict:set("k", false)
  check.equal(dict:get("k"), false)
  dict:set("k", 0 / 0)
  check.equal(dict:get("k"), 0 / 0)
  dict:set("k", nil)
  check.equal(dict:get("k"), nil)
  check.equal(dict:get("never set"), nil)
  dict:set("\0", 1)
  check.equal(dict:get("\0"), 1)
  check.equal(dict:get(""), nil)
  dict:set("", "empty")
  check.equal(dict:get(""), "empty")
end

function t.a_name_leads_to_the_same()
  veche.dict("same"):set("k", 1)
  check.equal(veche.dict("same"):get("k"), 1)
  check.equal(veche.dict("other"):get("k"), nil)
end

function t.entries_expire()
  local dict = veche.dict("ttl")
  dict:set("k", 1, 2)
  dict:set("stays", 1)
  veche.sleep(1.999)
  check.equal(dict:get("k"), 1)
  check.equal(dict:count(), 2)
  veche.sleep(0.001)
  check.equal(dict:get("k"), nil)
  check.equal(dict:count(), 1)
  check.equal(dict:add("k", 2, 1), true)
  check.equal(dict:add("k", 3, 1), false)
  veche.sleep(1)
  check.equal(dict:add("k", 4), true)
  check.equal(dict:get("k"), 4)
end

function t.deleting()
  local dict = veche.dict("deleting")
  dict:set("k", 1)
  check.equal(dict:delete("k"), true)
  check.equal(dict:delete("k"), false)
end

function t.numbers_are_increased()
  local dict = veche.dict("numbers")
  check.equal(dict:incr("n"), 1)
  check.equal(dict:incr("n"), 2)
  check.equal(dict:incr("n", -0.5), 1.5)
  check.equal(dict:incr("m", 1, 10), 11)
  dict:set("s", "1")
  check.fails("dict:incr: the value is a string, not a number", dict.incr, dict, "s")
  dict:set("n", 1e308)
  check.fails("dict:incr: the result is not a finite number", dict.incr, dict, "n", 1.7e308)
  dict:set("whole", 2 ^ 53 - 1)
  check.equal(dict:incr("whole"), 2 ^ 53)
  local why = "dict:incr: the sum exceeds 2^53, beyond which integers are not exact"
  check.fails(why, dict.incr, dict, "whole")
  check.fails(why, dict.incr, dict, "below", -2 ^ 53, -1)
  check.equal(dict:get("whole"), 2 ^ 53)
  check.equal(dict:get("below"), nil)
  check.equal(dict:incr("whole", -1), 2 ^ 53 - 1)
  check.equal(dict:incr("measured", 0.5, 2 ^ 53), 2 ^ 53)
  check.equal(dict:get("n"), 1e308)
end

function t.update_is_atomic()
  local dict = veche.dict("update")
  check.equal(dict:update("k", function(value) check.equal(value, nil) return 1 end), 1)
  check.equal(dict:update("k", function(value) return value + 1 end), 2)
  check.equal(dict:update("k", function() return nil end), nil)
  check.equal(dict:get("k"), nil)
  -- If the value changes while the function runs, the function is called again.
  dict:set("k", 1)
  local asked = 0
  local result = dict:update("k", function(value)
    asked = asked + 1
    if asked <= 3 then dict:incr("k", 10) end
    return value * 2
  end)
  check.equal(asked, 4)
  check.equal(result, 62)
  check.fails("too many concurrent changes of this key", dict.update, dict, "k", function() return dict:incr("k") end)
end

function t.update_keeps_or_sets_the_time_to_live()
  local dict = veche.dict("update ttl")
  dict:set("keeps", 1, 1)
  dict:set("sets", 1, 1)
  dict:update("keeps", function() return 2 end)
  dict:update("sets", function() return 2, 5 end)
  veche.sleep(1)
  check.equal(dict:get("keeps"), nil)
  check.equal(dict:get("sets"), 2)
end

function t.what_fails_in_update_changes_nothing()
  local dict, thrown = veche.dict("update fails"), {}
  dict:set("k", 1)
  local ok, caught = pcall(function() dict:update("k", function() error(thrown) end) end)
  check.equal(ok, false)
  check.equal(caught, thrown)
  local _, words = pcall(function() dict:update("k", function() error("oh") end) end)
  check.is_true(words:find("^dict%.lua:%d+: oh$"), words)
  check.fails("can't wait here", dict.update, dict, "k", function() veche.sleep(1) return 2 end)
  check.fails("can't wait here", dict.update, dict, "k", function()
    return coroutine.wrap(function() veche.sleep(1) return 2 end)()
  end)
  check.fails("a string, a number or a boolean expected, not table", dict.update, dict, "k", function() return {} end)
  check.fails("a number of seconds from 0.001", dict.update, dict, "k", function() return 1, 0 end)
  check.fails("bad argument #1 to 'time.iso'", dict.update, dict, "k", function() veche.time.iso("x") end)
  check.equal(dict:get("k"), 1)
  -- A function that runs too long is stopped, and leaves no lock.
  local runaway = veche.spawn(function() dict:update("k", function() while true do end end) end)
  check.fails("ran too long", runaway.join, runaway)
  dict:set("k", 2)
  check.equal(dict:get("k"), 2)
end

function t.keys_in_order()
  local dict = veche.dict("keys")
  for i = 9, 1, -1 do dict:set("user:" .. i, i) end
  dict:set("other", 1)
  dict:set("user:gone", 1, 1)
  veche.sleep(1)
  check.equal(table.concat(dict:keys("user:"), " "), "user:1 user:2 user:3 user:4 user:5 user:6 user:7 user:8 user:9")
  check.equal(table.concat(dict:keys("user:", 2), " "), "user:1 user:2")
  check.equal(#dict:keys(), 10)
  check.equal(#dict:keys("none"), 0)
  check.equal(dict:count(), 10)
end

function t.a_full_dict_says_so_and_forgets_nothing()
  local dict = veche.dict("small", { bytes_max = 2048 })
  local kept = 0
  local ok, words
  repeat
    ok, words = pcall(function() dict:set("k" .. kept, ("x"):rep(100)) end)
    if ok then kept = kept + 1 end
  until not ok
  check.is_true(words:find("dict:set: the dict is full: %d+ bytes more would exceed its limit of 2048"), words)
  check.is_true(kept > 3 and kept < 20)
  check.equal(dict:count(), kept)
  check.fails("full: ", dict.add, dict, "more", ("x"):rep(100))
  check.fails("full: ", dict.update, dict, "k0", function() return ("x"):rep(5000) end)
  dict:delete("k0")
  dict:set("k0", "x")
end

function t.options_are_settled_once()
  veche.dict("settled", { bytes_max = 4096 })
  veche.dict("settled", { bytes_max = 4096 })
  veche.dict("settled")
  check.fails("bad argument #2 to 'dict': the dict already exists with a limit of 4096 bytes", veche.dict, "settled", { bytes_max = 8192 })
  check.fails("bad argument #2 to 'dict': the only option is bytes_max", veche.dict, "x", { size = 1 })
  for _, bad in ipairs { 0, 1023, 2048.5, "4096", {}, 0 / 0, 1 / 0 } do
    check.fails("bad argument #2 to 'dict': bytes_max", veche.dict, "x", { bytes_max = bad })
  end
  check.fails("bad argument #2 to 'dict': a table", veche.dict, "x", 5)
end

function t.counters()
  local counter = veche.counter("hits")
  check.equal(counter:get(), 0)
  check.equal(counter:add(), 1)
  check.equal(counter:add(41), 42)
  check.equal(veche.counter("hits"):add(-2), 40)
  check.equal(counter:get(), 40)
  check.fails("counter:add: the counter would exceed 2^53", counter.add, counter, 2 ^ 53)
  check.equal(counter:get(), 40)
  for _, bad in ipairs { 0.5, "x", {}, 0 / 0, 1e300 } do
    check.fails("bad argument #1 to 'counter:add'", counter.add, counter, bad)
  end
  check.fails("bad argument #1 to 'counter:get': a counter expected", counter.get)
  check.fails("a counter expected", counter.add, veche.dict("x"), 1)
  check.fails("bad argument #1 to 'counter': a string expected, not nil", veche.counter)
  check.fails("bad argument #1 to 'counter': a name must have 1 to 255 bytes", veche.counter, "")
end

function t.bad_arguments()
  local dict = veche.dict("bad")
  for _, bad in ipairs { "", ("x"):rep(256) } do
    check.fails("bad argument #1 to 'dict': a name must have 1 to 255 bytes", veche.dict, bad)
  end
  check.fails("bad argument #1 to 'dict': a string expected, not table", veche.dict, {})
  check.fails("bad argument #1 to 'dict:set': a string expected, not number", dict.set, dict, 5, 1)
  check.fails("bad argument #1 to 'dict:set': a key may have at most 1024 bytes", dict.set, dict, ("x"):rep(1025), 1)
  check.fails("bad argument #2 to 'dict:set': a string, a number or a boolean expected, not table", dict.set, dict, "k", {})
  check.fails("bad argument #2 to 'dict:add': a string, a number or a boolean expected, not nil", dict.add, dict, "k")
  for _, bad in ipairs { 0, -1, 0 / 0, 1 / 0, "1", {} } do
    check.fails("bad argument #3 to 'dict:set': a number of seconds from 0.001 to 31536000", dict.set, dict, "k", 1, bad)
  end
  for _, bad in ipairs { 0 / 0, 1 / 0, "1", {} } do
    check.fails("bad argument #2 to 'dict:incr': a finite number", dict.incr, dict, "n", bad)
    check.fails("bad argument #3 to 'dict:incr': a finite number", dict.incr, dict, "n", 1, bad)
  end
  check.fails("bad argument #2 to 'dict:update': a function expected", dict.update, dict, "k", 5)
  for _, bad in ipairs { 0, 0.5, 10001, 0 / 0, "1" } do
    check.fails("bad argument #2 to 'dict:keys': a whole number from 1 to 10000", dict.keys, dict, "", bad)
  end
  for _, name in ipairs { "get", "set", "add", "delete", "incr", "update", "keys", "count" } do
    check.fails("bad argument #1 to 'dict:" .. name .. "': a dict expected (call it with a colon)", dict[name], "k", 1)
    check.fails("a dict expected", dict[name])
    check.fails("a dict expected", dict[name], veche.counter("bad"))
    check.survives(4, dict[name], dict, "k", 1, 1)
  end
  check.survives(2, veche.dict, "strange", { bytes_max = 4096 })
  check.survives(1, veche.counter, "strange")
  check.equal(getmetatable(dict), false)
end

return t
