-- Refuses what a page of another site has a browser send here: `router:before` of this stands before all that changes
-- something. The cookie's SameSite keeps others from acting in somebody's name, but an answer may also set a cookie.

local SAFE = { GET = true, HEAD = true, OPTIONS = true }

-- Browsers say where a request comes from by `Sec-Fetch-Site`, which no script can set, where the connection is secure or
-- local, and by `Origin` with whatever is no GET. What says neither is no browser.
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
