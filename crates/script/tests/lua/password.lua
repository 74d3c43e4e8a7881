-- Tests which arguments the functions of `veche.password` accept and refuse. Hashes are tested beside the code that
-- computes them.
local veche = require "veche"
local check = require "check"
local t = {}

function t.bad_arguments()
  for name, f in pairs(veche.password) do
    local bad = "bad argument #1 to 'password." .. name .. "': "
    check.fails(bad .. "a string expected, not nil", f)
    check.fails(bad .. "a string expected, not number", f, 7)
    check.fails(bad .. "at most 4096 bytes expected", f, ("a"):rep(4097))
  end
  check.fails("bad argument #2 to 'password.verify': a string expected, not table", veche.password.verify, "a", {})
end

function t.where_nothing_can_wait()
  check.fails("can't wait here", table.sort, { 1, 2 }, function() veche.password.hash("a") end)
  check.fails("can't wait here", table.sort, { 1, 2 }, function() veche.password.verify("a", nil) end)
end

return t
