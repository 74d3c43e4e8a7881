-- Handlers that compute for a given time, wait, or call Redis; and counters of the timer ticks and
-- Redis replies that were handled.
local veche = require "veche"
local r = veche.redis.connect(veche.config.redis)

local app, ticks, calls, worst = {}, 0, 0, 0

local function work(ms)
  local ends = os.clock() + ms / 1000
  while os.clock() < ends do end
end

-- Counts timer ticks and Redis replies, and records the longest time until a reply was handled.
function app.start()
  r:set("key", "value")
  veche.timer.every(0.1, function() ticks = ticks + 1 end)
  veche.spawn(function()
    while true do
      local before = veche.time.monotonic()
      r:get "key"
      calls, worst = calls + 1, math.max(worst, veche.time.monotonic() - before)
      veche.sleep(0.05)
    end
  end)
end

function app.message(conn, data)
  work(tonumber(data))
  conn:send "done"
end

function app.request(req)
  local query = req.query
  if req.path == "/app/counts" then
    local counts = { ticks = ticks, calls = calls, worst_s = worst }
    ticks, calls, worst = 0, 0, 0
    return counts
  elseif req.path == "/app/sleep" then
    veche.sleep(0.05)
  elseif req.path == "/app/redis" then
    r:get "key"
  elseif req.path == "/app/pieces" then
    local pause = tonumber(query.pause)
    for _ = 1, 200 do
      work(0.4)
      if pause then veche.sleep(pause) end
    end
  end
  return "done"
end

return app
