-- JSON Web Tokens, signed with HS256, for `identity = "jwt"`.

local veche = require "veche"
local encode = veche.base64.encode_url

local secret = os.getenv(veche.config.secret_env)

local token = {}

-- `claims` needs `sub`, the user, and `exp`, the expiry (seconds since 1970).
function token.sign(claims)
  local header = encode(veche.json.encode { alg = "HS256", typ = "JWT" })
  local message = header .. "." .. encode(veche.json.encode(claims))
  return message .. "." .. encode(veche.hmac.sha256(secret, message, "raw"))
end

return token
