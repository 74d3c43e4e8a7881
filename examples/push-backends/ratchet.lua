-- Pushes in Ratchet's format: {"command":"update_data","user":"tester01"} pushes a text that is fixed for the command.
local veche = require "veche"

local texts = veche.config.texts        -- from veche.toml: the texts by command

local function obey(data)
  local order = veche.json.decode(data)
  local text = assert(texts[order.command], "no such command")
  veche.push(order.user, text)
end

local app = {}

-- Errors of a frame are returned to the back end. Without pcall, such an error would end the back end's connection.
function app.message(conn, data)
  local ok, why = pcall(obey, data)
  if not ok then conn:send(veche.json.encode { error = why }) end
end

return app
