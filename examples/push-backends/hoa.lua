-- Pushes in Hoa's format: {"user":"tester01","command":"111111"} pushes 111111 to tester01.
local veche = require "veche"

local function obey(data)
  local order = veche.json.decode(data)
  veche.push(order.user, order.command)
end

local app = {}

-- Errors of a frame are returned to the back end. Without pcall, the error would end its connection.
function app.message(conn, data)
  local ok, why = pcall(obey, data)
  if not ok then conn:send(veche.json.encode { error = why }) end
end

return app
