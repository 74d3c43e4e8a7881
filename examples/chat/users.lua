-- Registered users, in memory: a restart loses them, as it loses the messages of the last day. A
-- real site stores users in its database (veche.mysql); the rest of the chat stays the same.

local veche = require "veche"

local users = { SESSION_SECONDS = 24 * 3600 }

-- All workers share these dictionaries.
local passwords = veche.dict("chat:hashes")           -- name -> the hash of veche.password
local sessions = veche.dict("chat:sessions")        -- digest of the cookie -> name

-- Returns a normalised name, or nil and the error. A name is part of channels ("dialog:#ann,bob")
-- and of keys ("ann/bob"), so it has no commas, hashes and slashes.
function users.normal(name)
  if type(name) ~= "string" then return nil, "Type a name." end
  name = name:lower()
  if #name < 2 or #name > 20 then return nil, "A name has 2 to 20 characters." end
  if not name:find("^[a-z][a-z0-9._-]*$") then
    return nil, "A name begins with a letter from a to z; then there may be letters, digits, '.', '_' and '-'."
  end
  return name
end

-- Returns true; false if the name is taken; nil and "busy" if too many passwords wait to be hashed.
function users.register(name, password)
  if passwords:get(name) then return false end
  local hash, why = veche.password.hash(password)
  if not hash then return nil, why end
  -- Another request may have registered the name during hashing, so the result of `add` decides.
  return passwords:add(name, hash)
end

-- Checks a password, which takes as long for an unknown name as for a known one. Returns nil and "busy" if too many
-- passwords wait to be compared.
function users.is_password(name, password) return veche.password.verify(password, passwords:get(name)) end

function users.exists(name) return passwords:get(name) ~= nil end

-- Returns at most `most` names, in alphabetical order.
function users.beginning_with(beginning, most) return passwords:keys(beginning, most) end

-- Only a digest is stored, so that the server's memory reveals no valid session cookie.
local function key_of(session) return veche.hash.sha256(session) end

function users.new_session(name)
  local session = veche.base64.encode_url(veche.random.bytes(24))
  sessions:set(key_of(session), name, users.SESSION_SECONDS)
  return session
end

function users.of_session(session) return session and sessions:get(key_of(session)) end

function users.end_session(session) if session then sessions:delete(key_of(session)) end end

return users
