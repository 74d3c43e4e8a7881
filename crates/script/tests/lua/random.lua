-- `veche.random`
local random = require("veche").random
local check = require "check"
local t = {}

function t.bytes()
  check.equal(random.bytes(0), "")
  check.equal(#random.bytes(1048576), 1048576)
  check.is_true(random.bytes(16) ~= random.bytes(16))
end

function t.integers_reach_both_ends_and_stay_within()
  local seen = {}
  for _ = 1, 1000 do
    local value = random.integer(-2, 2)
    check.is_true(value >= -2 and value <= 2 and value % 1 == 0)
    seen[value] = true
  end
  for value = -2, 2 do check.is_true(seen[value], value .. " never came") end
  check.equal(random.integer(7, 7), 7)
  local widest = random.integer(-2 ^ 53, 2 ^ 53)
  check.is_true(widest >= -2 ^ 53 and widest <= 2 ^ 53 and widest % 1 == 0)
end

function t.numbers()
  local sum = 0
  for _ = 1, 1000 do
    local value = random.number()
    check.is_true(value >= 0 and value < 1)
    sum = sum + value
  end
  check.is_true(sum > 400 and sum < 600, "a mean of " .. sum / 1000)
end

function t.bad_arguments()
  for _, bad in ipairs { -1, 0.5, 1048577, 0 / 0, 1 / 0, "5", {} } do
    check.fails("bad argument #1 to 'random.bytes': a whole number from 0 to 1048576 expected", random.bytes, bad)
    check.fails("bad argument #2 to 'random.integer'", random.integer, 0, bad == -1 and 1e300 or bad == 1048577 and -1 or bad)
  end
  check.fails("bad argument #1 to 'random.bytes'", random.bytes)
  check.fails("bad argument #1 to 'random.integer'", random.integer)
  check.fails("bad argument #2 to 'random.integer'", random.integer, 1)
  check.fails("bad argument #2 to 'random.integer': a number of at least argument #1", random.integer, 2, 1)
  check.survives(1, random.bytes)
  check.survives(2, random.integer, 1, 2)
  check.survives(1, random.number)
end

return t
