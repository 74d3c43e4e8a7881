-- Tests the replacements of LuaJIT's library functions: they return the same results as LuaJIT's own
-- functions, for arguments of any length.
local check = require "check"

local t = {}

local function is_sorted(list, count, compare)
  check.equal(count, #list)
  for at = 2, count do
    local before, after = list[at - 1], list[at]
    if compare and compare(after, before) or not compare and after < before then error("not sorted at " .. at, 2) end
  end
end

function t.lists_are_sorted_whatever_their_length_and_order()
  for _, count in ipairs { 0, 1, 2, 3, 512, 513, 1000, 4097 } do
    for _, order in ipairs { 1, -1, 7919 } do
      local numbers, strings, sum = {}, {}, 0
      for at = 1, count do
        numbers[at] = at * order % 4099
        strings[at], sum = "key " .. numbers[at], sum + numbers[at]
      end
      table.sort(numbers)
      table.sort(strings)
      is_sorted(numbers, count)
      is_sorted(strings, count)
      for at = 1, count do sum = sum - numbers[at] end
      check.equal(0, sum)
      local function down(a, b) return a > b end
      table.sort(numbers, down)
      is_sorted(numbers, count, down)
    end
  end
end

function t.what_has_an_order_of_its_own_is_sorted_by_it()
  local meta = { __lt = function(a, b) return a[1] < b[1] end }
  local list = {}
  for at = 1, 1000 do list[at] = setmetatable({ at * 7919 % 1009 }, meta) end
  table.sort(list)
  is_sorted(list, 1000)
  for _, count in ipairs { 2, 1000 } do
    local mixed = {}
    for at = 1, count do mixed[at] = at % 2 == 0 and at or "x" end
    local ok, why = pcall(table.sort, mixed)
    check.is_true(not ok and why:find("attempt to compare", 1, true), why)
  end
  -- The comparison function is a C function, which `table.sort` wraps in a Lua function.
  local words = { "c", "a", "b" }
  table.sort(words, rawequal)
  table.sort(words)
  check.equal("abc", table.concat(words))
  check.fails("bad argument #2 to 'sort'", function() table.sort({ 2, 1 }, 7) end)
end

function t.the_largest_key_is_found()
  check.equal(0, table.maxn {})
  check.equal(0, table.maxn { x = 1, [-5] = 2 })
  check.equal(9.5, table.maxn { 1, 2, [9.5] = 3, x = 4 })
  check.fails("bad argument #1 to 'maxn'", function() table.maxn "x" end)
end

function t.formats_are_carried_out_or_refused()
  check.equal('"a\\\nb" 7 %', ("%q %d %%"):format("a\nb", 7))
  check.equal("1 2", string.format("%s %s", 1, 2))
  check.equal("x", string.format "x")
  local half = ("x"):rep(524288)
  check.equal(524290, #("%q"):format(half))
  local long = half .. "x"
  check.equal(524289, #("%s"):format(long))
  check.fails("a text for %q is longer than 512 KiB", function() return ("%d %q"):format(1, long) end)
  check.fails("the format is longer than 512 KiB", function() return long:format() end)
  check.fails("string expected", function() return (string.format(nil)) end)
  check.fails("number expected", function() return (("%d"):format "x") end)
  -- Uses more different formats than the cache of parsed formats holds.
  for at = 1, 1100 do check.equal("value " .. at, ("value %d" .. (" "):rep(at % 200)):format(at):match "^(.-) *$") end
end

function t.numbers_are_read()
  check.equal(10, tonumber "10")
  check.equal(255, tonumber("ff", 16))
  check.equal(7, tonumber(7))
  check.equal(nil, tonumber "x")
  check.equal(1, tonumber(("0"):rep(524287) .. "1"))
  check.equal(nil, tonumber(("0"):rep(524288) .. "1"))
  check.fails("bad argument #1 to 'tonumber'", function() return (tonumber()) end)
end

function t.dates_have_short_formats()
  check.equal("1970", os.date("!%Y", 0))
  check.equal(1970, os.date("!*t", 0).year)
  check.equal(1024, #os.date(("x"):rep(1024), 0))
  check.fails("at most 1024 bytes", function() return os.date(("x"):rep(1025), 0) end)
end

function t.long_texts_are_searched_and_replaced()
  local long = ("a"):rep(1048576)
  local needle = ("a"):rep(5000) .. "b"
  check.equal(nil, long:find(needle, 1, true))
  check.equal(1053577, ((long .. needle .. "c"):find("b", 1, true)))
  check.equal(1048577, ((long .. needle):find(needle, 1, true)))
  check.equal(long, (long:gsub("b", "c")))
  check.equal(1048576, select(2, long:gsub("a", "b")))
  check.equal(long, (long:gsub("b", function() return "c" end)))
end

return t
