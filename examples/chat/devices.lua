-- Recognises devices from which a user has logged in before. A cookie, signed with the server's secret, marks a device
-- for one name and for 90 days. The cookie is not a session. Logins with it have a separate limit, so that an
-- attacker's guesses elsewhere do not lock the user out on the device.

local veche = require "veche"

local devices = { SECONDS = 90 * 24 * 3600 }

local secret = os.getenv(veche.config.secret_env)

-- The signed text has a blank, so that it can't be a token of token.lua.
local function sign(name, till)
  return veche.base64.encode_url(veche.hmac.sha256(secret, "device " .. name .. " " .. till, "raw"))
end

function devices.sign(name)
  local till = ("%d"):format(veche.time.now() + devices.SECONDS)
  return till .. "." .. sign(name, till)
end

function devices.is_known(cookie, name)
  local till, signature = (cookie or ""):match("^(%d+)%.([%w_-]+)$")
  if not till or #till > 12 or tonumber(till) < veche.time.now() then return false end
  return veche.hmac.equals(signature, sign(name, till))
end

return devices
