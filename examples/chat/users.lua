-- Who is registered, in memory: a restart forgets everybody, and the day of messages with them. A site of your own keeps
-- this in its database (veche.mysql), and the rest stays as it is.

local veche = require "veche"

local users = { SESSION_SECONDS = 24 * 3600 }

-- All workers share these.
local passwords = veche.dict("chat:hashes")           -- name -> what veche.password has made of it
local sessions = veche.dict("chat:sessions")        -- digest of the cookie -> name

-- A name as it is kept, or nil and why it can't be one. It stands in names of channels ("dialog:#ann,bob") and in keys
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
  -- It has waited, so another request may have been quicker: `add` decides.
  return passwords:add(name, hash)
end

-- It takes as long when there is nobody of that name. Nil and "busy" if too many passwords wait.
function users.is_password(name, password) return veche.password.verify(password, passwords:get(name)) end

function users.exists(name) return passwords:get(name) ~= nil end

-- At most `most` names, in their order.
function users.beginning_with(beginning, most) return passwords:keys(beginning, most) end

-- What is kept is a digest: whoever reads the memory of the server learns no session.
local function key_of(session) return veche.hash.sha256(session) end

function users.new_session(name)
  local session = veche.base64.encode_url(veche.random.bytes(24))
  sessions:set(key_of(session), name, users.SESSION_SECONDS)
  return session
end

function users.of_session(session) return session and sessions:get(key_of(session)) end

function users.end_session(session) if session then sessions:delete(key_of(session)) end end

return users
