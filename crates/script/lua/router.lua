-- `veche.router`: finds the function for a request by its method and path.
--
-- Routes without parameters are found by their whole path, all others in a tree of path segments.
-- At each segment, a literal is tried before a parameter, and a parameter before a tail, so the
-- order in which routes were added does not matter. Each node of the tree has a fixed depth, so a
-- search visits each node at most once, whatever path a client sends.
local error, next, pairs, rawget, rawset, select, setmetatable, type =
  error, next, pairs, rawget, rawset, select, setmetatable, type
local find, gmatch, gsub, match, sub = string.find, string.gmatch, string.gsub, string.match, string.sub
local concat, sort = table.concat, table.sort

local PATH_BYTES_MAX, METHOD_BYTES_MAX = 1024, 32

local Router = {}
Router.__index = Router
Router.__metatable = false

local function check(self, name)
  if type(self) ~= "table" or not rawget(self, "befores") then
    error("bad argument #1 to 'router:" .. name .. "': a router expected (call it with a colon)", 3)
  end
end

local function is_callable(f)
  if type(f) == "function" then return true end
  return type(f) == "table" and rawget(f, "befores") ~= nil
end

-- Returns the segments of a pattern and the names of its parameters; or nil and the error.
local function parse(path)
  if type(path) ~= "string" or sub(path, 1, 1) ~= "/" or #path > PATH_BYTES_MAX or find(path, "[?#%c]") then
    return nil, "expected a path of at most 1024 bytes that begins with / and contains no ?, # or control characters"
  end
  local segments, names, seen = {}, {}, {}
  for segment in gmatch(sub(path, 2) .. "/", "([^/]*)/") do
    local kind, parameter = match(segment, "^([:*])(.*)$")
    if kind then
      if kind == "*" and parameter == "" then parameter = "*" end
      if parameter == "" or seen[parameter] then
        return nil, "in '" .. path .. "' a parameter has no name, or two parameters have the same name"
      end
      seen[parameter], names[#names + 1] = true, parameter
    end
    if segments.has_tail then return nil, "in '" .. path .. "' the * is not at the end" end
    segments.has_tail = kind == "*"
    segments[#segments + 1] = { kind = kind, text = segment }
  end
  return segments, names
end

local function node_of(tree, segments)
  for index = 1, #segments do
    local segment = segments[index]
    local below
    if segment.kind == ":" then
      below = tree.parameter or {}
      tree.parameter = below
    elseif segment.kind == "*" then
      below = tree.tail or {}
      tree.tail = below
    else
      below = tree[1] and tree[1][segment.text] or {}
      tree[1] = tree[1] or {}
      tree[1][segment.text] = below
    end
    tree = below
  end
  return tree
end

-- Adds a route. Has to be called as `return add(…)`, so that errors name the script's line.
local function add(self, name, number, method, path, f)
  local function bad(argument, words)
    return "bad argument #" .. argument .. " to 'router:" .. name .. "': " .. words
  end
  local segments, names = parse(path)
  if not segments then error(bad(number, names), 2) end
  if not is_callable(f) then error(bad(number + 1, "a function expected"), 2) end
  local routes
  if #names == 0 then
    local asked = gsub(path, "%%", "%%25")
    routes = self.exact[asked] or {}
    self.exact[asked] = routes
  else
    local node = node_of(self.tree, segments)
    routes = node.routes or {}
    node.routes = routes
  end
  if routes[method] then
    error(bad(number, "a function is already set for " .. (method == "*" and "any method of" or method) .. " " .. path), 2)
  end
  routes[method] = { f = f, names = names }
  return self
end

for _, method in ipairs { "get", "post", "put", "patch", "delete", "head", "options" } do
  local token = method:upper()
  Router[method] = function(self, path, f)
    check(self, method)
    return add(self, method, 1, token, path, f)
  end
end

function Router:any(path, f)
  check(self, "any")
  return add(self, "any", 1, "*", path, f)
end

function Router:route(method, path, f)
  check(self, "route")
  local is_method = type(method) == "string" and #method <= METHOD_BYTES_MAX and find(method, "^[A-Z][A-Z%-]*$")
  if not is_method then
    error("bad argument #1 to 'router:route': a method in capitals expected, such as \"GET\"", 2)
  end
  return add(self, "route", 2, method, path, f)
end

function Router:before(f)
  check(self, "before")
  if not is_callable(f) then error("bad argument #1 to 'router:before': a function expected", 2) end
  self.befores[#self.befores + 1] = f
  return self
end

function Router:otherwise(f)
  check(self, "otherwise")
  if not is_callable(f) then error("bad argument #1 to 'router:otherwise': a function expected", 2) end
  self.other = f
  return self
end

---------------------------------------------------------------------------------------------------- finding

-- A request's path is already decoded, except for two characters: a slash within a segment, and the percent sign.
local SPELLED = { ["%2F"] = "/", ["%25"] = "%" }

local function decoded(segment)
  if not find(segment, "%", 1, true) then return segment end
  return (gsub(segment, "%%2[F5]", SPELLED))
end

-- Returns the value of a tail. A slash within a segment stays encoded, so that it can be distinguished from one between
-- segments.
local function joined(segments, from, to)
  local tail = {}
  for index = from, to do tail[#tail + 1] = gsub(segments[index], "/", "%%2F") end
  return concat(tail, "/")
end

-- Returns the function for the requested method; the function for GET also serves HEAD.
local function of_method(routes, method)
  return routes[method] or method == "HEAD" and routes.GET or routes["*"]
end

-- Returns the route for the method. If the path has no route for the method, adds the methods that have one to `allowed`.
local function choose(routes, method, allowed)
  local route = of_method(routes, method)
  if route then return route end
  for other in pairs(routes) do allowed[other] = true end
end

local function search(node, segments, index, count, method, values, depth, allowed)
  if index > count then
    return node.routes and choose(node.routes, method, allowed)
  end
  local segment = segments[index]
  local literals = node[1]
  local below = literals and literals[segment]
  if below then
    local route = search(below, segments, index + 1, count, method, values, depth, allowed)
    if route then return route end
  end
  below = node.parameter
  if below and segment ~= "" then
    local route = search(below, segments, index + 1, count, method, values, depth + 1, allowed)
    if route then
      values[depth] = segment
      return route
    end
  end
  below = node.tail
  if below then
    local route = choose(below.routes, method, allowed)
    if route then
      values[depth] = joined(segments, index, count)
      return route
    end
  end
end

-- Returns the route or nil, and its parameters if it has any. Without a route, the third result is the
-- set of methods that have a route for the path.
local function find_route(self, method, path)
  local allowed = {}
  local routes = self.exact[path]
  local route = routes and choose(routes, method, allowed)
  if route or not next(self.tree) then return route, nil, allowed end
  local segments, count, values = {}, 0, {}
  for segment in gmatch(sub(path, 2) .. "/", "([^/]*)/") do
    count = count + 1
    segments[count] = decoded(segment)
  end
  route = search(self.tree, segments, 1, count, method, values, 1, allowed)
  return route, values, allowed
end

local function allow_line(allowed)
  if allowed.GET then allowed.HEAD = true end
  allowed.OPTIONS = true
  local methods = {}
  for method in pairs(allowed) do methods[#methods + 1] = method end
  sort(methods)
  return concat(methods, ", ")
end

local function refuse(self, req, method, allowed)
  if not next(allowed) then
    if self.other then return self.other(req) end
    return 404, "not found\n"
  end
  local allow = { Allow = allow_line(allowed) }
  if method == "OPTIONS" then return 204, allow, "" end
  return 405, allow, "method not allowed\n"
end

-- Runs the middleware, which may answer instead of the route's function.
local function go_on(self, index, req, f, ...)
  if select("#", ...) > 0 and (...) ~= nil then return ... end
  local before = self.befores[index]
  if not before then return f(req) end
  return go_on(self, index + 1, req, f, before(req))
end

function Router:__call(req)
  local method = req.method
  local route, values, allowed = find_route(self, method, req.path)
  if not route then return refuse(self, req, method, allowed) end
  local names = route.names
  if #names > 0 then
    -- The request already has the parameters of the configured route that led to this script. This adds its own.
    local params = req.params
    for index = 1, #names do params[names[index]] = values[index] end
    rawset(req, "params", params)
  end
  if #self.befores == 0 then return route.f(req) end
  return go_on(self, 1, req, route.f)
end

return function() return setmetatable({ exact = {}, tree = {}, befores = {} }, Router) end
