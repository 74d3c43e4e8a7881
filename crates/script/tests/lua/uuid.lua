-- `veche.uuid`
local veche = require "veche"
local check = require "check"
local uuid = veche.uuid
local t = {}

local FORM = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-(%x)%x%x%x%-([89ab])%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$"

function t.v4()
  local seen = {}
  for _ = 1, 100 do
    local id = uuid.v4()
    check.equal(id:match(FORM), "4")
    check.equal(id, id:lower())
    check.is_true(not seen[id])
    seen[id] = true
  end
end

function t.v7_has_the_time_and_keeps_the_order()
  local last = ""
  -- One millisecond has room for fewer than 6,000 ids.
  for _ = 1, 6000 do
    local id = uuid.v7()
    check.equal(id:match(FORM), "7")
    check.is_true(id > last, id .. " after " .. last)
    last = id
  end
  local ms = tonumber(last:sub(1, 8) .. last:sub(10, 13), 16)
  local now_ms = veche.time.now() * 1000
  check.is_true(ms >= now_ms and ms < now_ms + 10, ms .. " is not " .. now_ms)
end

return t
