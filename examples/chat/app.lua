-- The server's side of the chat: users, sessions and dialogues. All of it is HTTP and JSON.
--
--   POST   /api/register   {"name":…,"password":…}   201 and a session (a cookie), or the error
--   POST   /api/login      {"name":…,"password":…}   200 and a session
--   POST   /api/logout                               204
--   GET    /api/token                                {"token":…,"name":…}: opens the connection, for ten minutes
--   GET    /api/people?name=BEGINNING                {"people":[{"name":…,"online":…,"last_seen":…,"dialog":STATE}]}
--   GET    /api/dialogs                              {"dialogs":[{"with":NAME,"state":STATE}]}
--   POST   /api/dialogs    {"with":NAME}             {"state":STATE}: invites, or accepts an invitation
--   DELETE /api/dialogs/NAME                         204: leaves, declines, or takes an invitation back
--
-- STATE is "sent" or "received" for an invitation, and "accepted" for a dialogue; the pages of both users are notified
-- when it changes. Register and login answer 429 beyond their limits (limits.lua), and 503 with Retry-After while too
-- many passwords wait to be hashed. Requests of other sites' pages are refused with 403 (origin.lua).
--
-- This script handles no messages: pages publish them to the dialogue's channel, and the server
-- adds the sender's name.
-- See veche.toml.

local veche = require "veche"
local devices = require "devices"
local dialogs = require "dialogs"
local limits = require "limits"
local origin = require "origin"
local users = require "users"
local token = require "token"

local TOKEN_SECONDS = 600
local PEOPLE_MAX = 50        -- in one response

local app, router = {}, veche.router()
app.request = router
router:before(origin)

-- The name of the requesting user, or nil. The cookie is same_site = "strict": pages of other sites send requests without it.
local function who(req) return users.of_session(req.cookies.session) end

local function cookie(name, value, path, seconds)
  return veche.cookie(name, value, { path = path, http_only = true, same_site = "strict", max_age = seconds })
end

local function session_cookie(value, seconds) return cookie("session", value, "/api", seconds) end

local function enter(status, name)
  local cookies = {
    session_cookie(users.new_session(name), users.SESSION_SECONDS),
    cookie("device", devices.sign(name), "/api/login", devices.SECONDS),
  }
  return status, { ["Set-Cookie"] = cookies }, { name = name }
end

local function busy()
  return 503, { ["Retry-After"] = "2" }, { error = "Too many want to come in at once. Try again in a moment." }
end

-- Returns the name and the password from a request's body, or nil, nil and the error.
local function credentials(req)
  -- A form of another site can't send JSON, so it can't make a browser log in as another user.
  if (req.headers["content-type"] or ""):sub(1, 16) ~= "application/json" then return nil, nil, "JSON expected" end
  local body = req.json
  if type(body) ~= "table" then return nil, nil, "JSON expected" end
  local name, why = users.normal(body.name)
  if not name then return nil, nil, why end
  if type(body.password) ~= "string" or #body.password < 8 or #body.password > 200 then
    return nil, nil, "A password has 8 to 200 characters."
  end
  return name, body.password
end

router:post("/api/register", function(req)
  local name, password, why = credentials(req)
  if not name then return 400, { error = why } end
  if not limits.registration(req.remote) then return 429, { error = "Too many at once. Try again in a minute." } end
  local is_new, is_busy = users.register(name, password)
  if is_busy then return busy() end
  if not is_new then return 409, { error = "'" .. name .. "' is taken." } end
  veche.publish("people:all", { registered = name })
  return enter(201, name)
end)

router:post("/api/login", function(req)
  local name, password, why = credentials(req)
  if not name then return 400, { error = why } end
  local try = limits.login(name, req.remote, devices.is_known(req.cookies.device, name))
  if not try then return 429, { error = "Too many wrong passwords. Try again in some minutes." } end
  local is_right, is_busy = users.is_password(name, password)
  if is_busy then
    try.give_back()
    return busy()
  end
  -- The text is the same for an unknown name, because the response must not reveal which names are registered.
  if not is_right then return 403, { error = "The name or the password is wrong." } end
  try.forget()
  return enter(200, name)
end)

router:post("/api/logout", function(req)
  users.end_session(req.cookies.session)
  return 204, { ["Set-Cookie"] = session_cookie("", 0) }, ""
end)

-- Wraps a handler that only logged-in users may call.
local function known(f)
  return function(req)
    local me = who(req)
    if not me then return 401, { error = "Log in first." } end
    return f(req, me)
  end
end

router:get("/api/token", known(function(_, me)
  local now = math.floor(veche.time.now())
  return { name = me, token = token.sign { sub = me, iat = now, exp = now + TOKEN_SECONDS } }
end))

router:get("/api/people", known(function(req, me)
  local people = veche.json.array()
  local beginning = (req.query.name or ""):lower()
  for _, name in ipairs(users.beginning_with(beginning, PEOPLE_MAX + 1)) do
    if name ~= me and #people < PEOPLE_MAX then
      local status = veche.user_status(name)
      people[#people + 1] = {
        name = name, online = status.connections > 0, last_seen = status.last_seen, dialog = dialogs.state(me, name),
      }
    end
  end
  return { people = people }
end))

router:get("/api/dialogs", known(function(_, me) return { dialogs = dialogs.of(me) } end))

-- Notifies both users on their personal channels (#bob), which reach all their tabs. A page that
-- reconnects requests the list.
local function tell(one, other)
  veche.push(one, { dialog = other, state = dialogs.state(one, other) or "none" })
  veche.push(other, { dialog = one, state = dialogs.state(other, one) or "none" })
end

router:post("/api/dialogs", known(function(req, me)
  local other = users.normal(type(req.json) == "table" and req.json.with)
  if not other or other == me or not users.exists(other) then return 404, { error = "No user has this name." } end
  local before = dialogs.state(me, other)
  if not before and not limits.invitation(me, req.remote) then
    return 429, { error = "You have invited many people. Try again in an hour." }
  end
  local state, why = dialogs.begin(me, other)
  if not state then return 409, { error = why } end
  if state ~= before then tell(me, other) end
  return { state = state }
end))

router:delete("/api/dialogs/:name", known(function(req, me)
  local other = users.normal(req.params.name)
  if not other or not dialogs.leave(me, other) then return 404, { error = "There is no such dialogue." } end
  tell(me, other)
  return 204, ""
end))

return app
