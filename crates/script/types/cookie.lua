---@meta
-- `veche.cookie`: writes cookies; `req.cookies` reads them.

---@class veche
local veche = {}

---A value for the header `Set-Cookie`. Several cookies are a list: `["Set-Cookie"] = { a, b }`. To delete one, set it
---again with the same path and `max_age = 0`.
---Errors: a name with other characters than a header's name may have; a value with a space, `"`, `,`, `;`, `\` or anything
---beyond printable ASCII; options of other names or kinds; over 4096 bytes.
---@param name string
---@param value string
---@param options? veche.cookie_options
---@return string
function veche.cookie(name, value, options) end

---@class veche.cookie_options
---@field path? string Begins with `/`. Without it the cookie is for the folder of the request's path.
---@field domain? string Without it the cookie is for this host alone.
---@field max_age? integer Seconds; 0 or less deletes it. Without this and `expires` it goes with the browser.
---@field expires? number Seconds since 1970, as of `veche.time.now`.
---@field http_only? boolean Scripts of the page don't see it.
---@field secure? boolean It travels by HTTPS only.
---@field same_site? "strict"|"lax"|"none" Whether it is sent with requests that other sites cause; "none" needs `secure`.
