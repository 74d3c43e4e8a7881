---@meta
-- `veche.router`: dispatches requests by method and path. A router is a table that can be called like `app.request`.
--
-- A segment `:name` of a path matches any one segment that is not empty; a final `*` or `*name` matches the rest of the
-- path. Their values are stored, decoded, in `req.params`, together with those of the configured
-- route; the value of a `*` without a name is `params["*"]`. In the rest matched by `*`, a slash
-- sent as `%2F` stays `%2F`. Paths are compared decoded, as written here, and case-sensitively;
-- `/users` and `/users/` are different paths. If several routes match, literal segments take
-- precedence over parameters, and parameters over the rest.
--
-- The router itself responds with 404 if no path matches; with 405 and `Allow` if only the method does not match; to OPTIONS
-- with 204 and `Allow`; and to HEAD with the function for GET, without the body.

---@class veche
local veche = {}

---Creates a router.
---@return veche.router
function veche.router() end

---Every method returns the router, so that calls can be chained. Errors: a path that does not begin with `/`, contains `?`
---or `#`, exceeds 1024 bytes, repeats a parameter or continues after `*`; an argument `f` that is not a function; a
---method and path that already have a function.
---@class veche.router
---@operator call(veche.req): any
local router = {}

---@param path string
---@param f veche.respond
---@return veche.router
function router:get(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:post(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:put(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:patch(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:delete(path, f) end

---Handles HEAD, if it needs another response than GET.
---@param path string
---@param f veche.respond
---@return veche.router
function router:head(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:options(path, f) end

---Handles all methods that have no function of their own for this path.
---@param path string
---@param f veche.respond May be another router.
---@return veche.router
function router:any(path, f) end

---Handles a method by its name, such as "PROPFIND".
---@param method string In upper case.
---@param path string
---@param f veche.respond
---@return veche.router
function router:route(method, path, f) end

---Adds a function that is called before the function of each route, in the order in which they were added. If it returns a
---value, that is the response; if it returns nil, processing continues.
---@param f veche.respond
---@return veche.router
function router:before(f) end

---Handles requests that would get 404.
---@param f veche.respond
---@return veche.router
function router:otherwise(f) end
