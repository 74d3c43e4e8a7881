-- Fills its VM with the configured number of mebibytes, and echoes messages.
local veche = require "veche"

local app, kept = {}, {}

function app.start()
  while collectgarbage "count" < veche.config.kept_mib * 1024 do
    for _ = 1, 1000 do kept[#kept + 1] = { id = #kept, name = "user " .. #kept, tags = { "a", "b" } } end
    veche.sleep(0)
  end
end

function app.message(conn, data)
  conn:send(data)
end

return app
