---@meta
-- `veche.router`: functions by method and path, in one table that is called as `app.request` is.
--
-- A segment `:name` of a path takes any one segment that is not empty, a last one `*` or `*name` all that is left. They
-- come decoded in `req.params`, beside those of the route in the configuration; `*` without a name as `params["*"]`. In
-- what a `*` takes, a slash that was sent as `%2F` stays `%2F`. What a path holds is compared decoded, as it is written
-- here, and by its case; `/users` and `/users/` are two paths. Where several routes match, a literal segment comes before
-- a parameter, and that before a tail.
--
-- By itself it answers 404 where no path matches, 405 with `Allow` where only the method does not, OPTIONS with 204 and
-- `Allow`, and HEAD by what is there for GET, without the body.

---@class veche
local veche = {}

---@return veche.router
function veche.router() end

---Each gives the router back, so that calls can be chained. Errors: a path that does not begin with `/`, with `?` or `#`,
---over 1024 bytes, with a parameter twice or something behind a `*`; no function; a method and path that have one.
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

---HEAD, where it is not to be answered as GET is.
---@param path string
---@param f veche.respond
---@return veche.router
function router:head(path, f) end

---@param path string
---@param f veche.respond
---@return veche.router
function router:options(path, f) end

---All methods that have no function of their own at that path.
---@param path string
---@param f veche.respond Another router, too.
---@return veche.router
function router:any(path, f) end

---Any other method.
---@param method string In capitals.
---@param path string
---@param f veche.respond
---@return veche.router
function router:route(method, path, f) end

---Called before the function of each route, those that were added first first. If it returns something, that is the
---answer; nil goes on.
---@param f veche.respond
---@return veche.router
function router:before(f) end

---Answers what would be a 404.
---@param f veche.respond
---@return veche.router
function router:otherwise(f) end
