-- JSON Web Tokens, signed with HS256: what `identity = "jwt"` believes.

local veche = require "veche"
local encode = veche.base64.encode_url

local secret = os.getenv(veche.config.secret_env)

local token = {}

-- `claims` has to have `sub`, who it is, and `exp`, until when (seconds since 1970).
function token.sign(claims)
  local header = encode(veche.json.encode { alg = "HS256", typ = "JWT" })
  local message = header .. "." .. encode(veche.json.encode(claims))
  return message .. "." .. encode(veche.hmac.sha256(secret, message, "raw"))
end

return token
