---@meta
-- `veche.cookie`: formats cookies; `req.cookies` contains those of a request.

---@class veche
local veche = {}

---Returns a value for the header `Set-Cookie`. For several cookies use a list: `["Set-Cookie"] = { a, b }`. To delete a
---cookie, set it again with the same path and `max_age = 0`.
---Errors: a name with characters that are not allowed in header names; a value with a space, `"`, `,`, `;`, `\` or anything
---but printable ASCII; unknown options or options of another type; a cookie of more than 4096 bytes.
---@param name string
---@param value string
---@param options? veche.cookie_options
---@return string
function veche.cookie(name, value, options) end

---@class veche.cookie_options
---@field path? string Begins with `/`. By default the folder of the request's path.
---@field domain? string By default only this host.
---@field max_age? integer Seconds; 0 or less deletes the cookie. Without `max_age` and `expires` the cookie lasts until the browser is closed.
---@field expires? number Seconds since 1970, as returned by `veche.time.now`.
---@field http_only? boolean Hides the cookie from scripts of the page.
---@field secure? boolean Sent over HTTPS only.
---@field same_site? "strict"|"lax"|"none" Whether it is sent with requests that other sites initiate; "none" requires `secure`.
