-- Each request waits for a query that takes a second, in blocking style. Its coroutine waits; the worker does not.
local veche = require "veche"

local db = veche.mysql.connect(veche.config.database)

local app = {}

function app.request()
  local slept = db:value("select sleep(?)", veche.config.seconds)
  return "slept, and the database says " .. slept .. "\n"
end

return app
