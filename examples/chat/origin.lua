-- Refuses requests that pages of other sites make a browser send, except GET, HEAD and OPTIONS.
-- `SameSite=Strict` keeps the session cookie out of such requests, but the responses to them could
-- still set or delete cookies.

local SAFE = { GET = true, HEAD = true, OPTIONS = true }

-- Browsers send `Sec-Fetch-Site` over TLS and to loopback, and `Origin` with each such request; no
-- script can change either. A request without both headers comes from another program, which has no
-- visitor's cookies.
local function is_own(headers)
  local site = headers["sec-fetch-site"]
  if site then return site == "same-origin" end
  local origin = headers.origin
  if not origin then return true end
  local host = origin:lower():match("^https?://([^/]+)$")
  return host ~= nil and host == (headers.host or ""):lower()
end

return function(req)
  if SAFE[req.method] or is_own(req.headers) then return nil end
  return 403, { error = "This comes from another site." }
end
