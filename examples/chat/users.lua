-- Registered users, in memory: a restart loses them, and the day of messages with them. A real site stores
-- this in its database (veche.mysql), and the rest stays the same.

local veche = require "veche"

local users = { SESSION_SECONDS = 24 * 3600 }

-- All workers share these.
local passwords = veche.dict("chat:hashes")           -- name -> the hash of veche.password
local sessions = veche.dict("chat:sessions")        -- digest of the cookie -> name

-- A normalised name, or nil and the error. It is part of names of channels ("dialog:#ann,bob") and of keys
-- ("ann/bob"), so there are no commas, hashes and slashes in it.
function users.normal(name)
  if type(name) ~= "string" then return nil, "Type a name." end
  name = name:lower()
  if #name < 2 or #name > 20 then return nil, "A name has 2 to 20 characters." end
  if not name:find("^[a-z][a-z0-9._-]*$") then
    return nil, "A name begins with a letter from a to z; then there may be letters, digits, '.', '_' and '-'."
  end
  return name
end

-- False if the name is taken; nil and "busy" if too many passwords wait to be hashed.
function users.register(name, password)
  if passwords:get(name) then return false end
  local hash, why = veche.password.hash(password)
  if not hash then return nil, why end
  -- Hashing waits, so another request may have been quicker: `add` decides.
  return passwords:add(name, hash)
end

-- It takes the same time for an unknown name. Nil and "busy" if too many passwords wait.
function users.is_password(name, password) return veche.password.verify(password, passwords:get(name)) end

function users.exists(name) return passwords:get(name) ~= nil end

-- At most `most` names, in their order.
function users.beginning_with(beginning, most) return passwords:keys(beginning, most) end

-- Only a digest is stored: the server's memory reveals no session.
local function key_of(session) return veche.hash.sha256(session) end

function users.new_session(name)
  local session = veche.base64.encode_url(veche.random.bytes(24))
  sessions:set(key_of(session), name, users.SESSION_SECONDS)
  return session
end

function users.of_session(session) return session and sessions:get(key_of(session)) end

function users.end_session(session) if session then sessions:delete(key_of(session)) end end

return users
