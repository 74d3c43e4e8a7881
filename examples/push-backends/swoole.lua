-- Serves the message format of Swoole on one public port. The first message of a client, such as tester01, is its
-- user's name. The frame {"command":"update_data","user":"tester01"}, from any client, is forwarded to tester01
-- unchanged.
local veche = require "veche"

-- A connection's `user` is fixed in the handshake, before any message. So each user of Swoole's
-- protocol is represented by a channel.
local function channel(user)
  local is_name = type(user) == "string" and #user <= 100 and user:find("^[^%c]+$")
  return is_name and "swoole:" .. user
end

local app = {}

function app.message(conn, data)
  local ok, order = pcall(veche.json.decode, data)
  if ok and type(order) == "table" then
    local to = order.command == "update_data" and channel(order.user)
    if to then veche.publish(to, data) end
  elseif not conn.attributes.is_known then
    local mine = channel(data)
    if not mine then return conn:close(4000, "a name has 1 to 100 bytes") end
    conn.attributes.is_known = true
    conn:subscribe(mine)
  end
end

return app
