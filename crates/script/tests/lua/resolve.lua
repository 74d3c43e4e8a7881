-- `veche.resolve`: valid and invalid arguments. The tests of the server cover the answers of DNS.
local veche = require "veche"
local check = require "check"
local t = {}

function t.bad_arguments()
  local host = "bad argument #1 to 'resolve': "
  check.fails(host .. "a string expected", veche.resolve)
  check.fails(host .. "a string expected", veche.resolve, 7)
  local name = host .. "a host name of 1 to 253 bytes expected"
  check.fails(name, veche.resolve, "")
  check.fails(name, veche.resolve, "a\0b")
  check.fails(name, veche.resolve, "\255")
  check.fails(name, veche.resolve, ("a"):rep(254))
  check.fails("bad argument #2 to 'resolve': a table of options expected", veche.resolve, "a", 5)
  local timeout = "bad option timeout to 'resolve': more than 0 and at most 86400 seconds expected"
  for _, bad in ipairs { 0, -1, 0 / 0, 1 / 0, 86401, "ten", {} } do
    check.fails(timeout, veche.resolve, "a", { timeout = bad })
  end
end

function t.where_nothing_can_wait()
  check.fails("can't wait here", table.sort, { 1, 2 }, function() veche.resolve("localhost") end)
end

return t
