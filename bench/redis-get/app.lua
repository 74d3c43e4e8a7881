-- Calls GET from a hundred coroutines of one worker for a given time, and answers with the number
-- of calls.
local veche = require "veche"

local r = veche.redis.connect(veche.config.redis)
local TASKS = 100

local app = {}

function app.request(req)
  local seconds = tonumber(req.query.seconds)
  r:set("key", "value")
  local monotonic = veche.time.monotonic
  local tasks = {}
  local ends = monotonic() + seconds
  for i = 1, TASKS do
    tasks[i] = veche.spawn(function()
      local calls = 0
      while monotonic() < ends do
        local value = r:get("key")
        if value ~= "value" then error("an unexpected value: " .. tostring(value)) end
        calls = calls + 1
      end
      return calls
    end)
  end
  local calls = 0
  for i = 1, TASKS do calls = calls + tasks[i]:join() end
  return tostring(calls)
end

return app
