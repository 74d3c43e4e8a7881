-- A chat. One connection is one person in one room; messages are JSON objects with a "type".
--
--   the page sends                          and receives
--   {"type":"join","nick":"Ann"}            {"type":"joined","id":…,"nick":"Ann"} or {"type":"refused","why":…}
--   {"type":"say","text":"hello"}           {"type":"say","id":…,"nick":"Ann","text":"hello"}, as all in the room
--   {"type":"here","to":ID}                 {"type":"join","id":…,"nick":…}, {"type":"leave",…}: of any member
--                                           {"type":"here","id":…,"nick":…}: a member was here before you
--
-- Each worker has its own Lua VM, so no worker has a list of all members. Clients announce
-- themselves instead: each page that sees a join answers "here", and that answer goes to the new
-- client alone.

local veche = require "veche"
local json = veche.json

local NICK_CHARACTERS_MAX = 20
local TEXT_BYTES_MAX = 2000

local reserved = {}
for _, nick in ipairs(veche.config.reserved or {}) do reserved[nick] = true end

local function room(conn) return "chat:" .. conn.params.room end

-- The new client's own channel. Only members of the same room can publish to it.
local function inbox(conn, id) return room(conn) .. ":" .. id end

local function tell(conn, message) conn:send(json.encode(message)) end

local function tell_channel(channel, message) veche.publish(channel, message) end

-- Returns why a nickname is refused, or nil if it is accepted.
local function fault_of(nick)
  if type(nick) ~= "string" or nick == "" then return "Type a name." end
  -- Counts characters: each byte that is no continuation byte of UTF-8 begins one.
  local _, characters = nick:gsub("[^\128-\191]", "")
  if characters > NICK_CHARACTERS_MAX then return "A name has at most " .. NICK_CHARACTERS_MAX .. " characters." end
  if nick:find("%c") then return "A name has no control characters." end
  if nick:find("^ ") or nick:find(" $") then return "A name has no blanks around it." end
  if reserved[nick:lower()] then return "'" .. nick .. "' is reserved." end
end

local on = {}

function on.join(conn, message)
  local mine = conn.attributes
  if mine.nick then return end
  local why = fault_of(message.nick)
  if why then return tell(conn, { type = "refused", why = why }) end
  -- Each call waits until it takes effect. Subscribing before announcing means that no member is
  -- missed.
  conn:subscribe(inbox(conn, conn.id))
  conn:subscribe(room(conn))
  mine.nick = message.nick
  tell(conn, { type = "joined", id = conn.id, nick = message.nick })
  tell_channel(room(conn), { type = "join", id = conn.id, nick = message.nick })
end

function on.say(conn, message)
  local nick, text = conn.attributes.nick, message.text
  if not nick or type(text) ~= "string" or text == "" or #text > TEXT_BYTES_MAX then return end
  tell_channel(room(conn), { type = "say", id = conn.id, nick = nick, text = text })
end

function on.here(conn, message)
  local nick, to = conn.attributes.nick, message.to
  if not nick or type(to) ~= "string" or not to:find("^%d+%.%d+%.%d+$") then return end
  tell_channel(inbox(conn, to), { type = "here", id = conn.id, nick = nick })
end

local app = {}

-- Runs before the WebSocket opens; returning a status refuses it.
function app.handshake(req)
  local name = req.params.room
  if #name > 32 or not name:find("^[%w_-]+$") then
    return 400, "a room's name has 1 to 32 letters, digits, '_' and '-'\n"
  end
end

function app.message(conn, data)
  -- Messages of clients may be anything. An error here would end the connection with 1011.
  local ok, message = pcall(json.decode, data)
  local act = ok and type(message) == "table" and on[message.type]
  if act then act(conn, message) end
end

-- Runs when the connection has ended, whatever the reason: a closed tab, a lost network, or an
-- error in a handler.
function app.close(conn)
  local nick = conn.attributes.nick
  if nick then tell_channel(room(conn), { type = "leave", id = conn.id, nick = nick }) end
end

return app
