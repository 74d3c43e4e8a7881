local check = require "check"
local veche = require "veche"

local t = {}

local function ask(router, method, path, params)
  return router { method = method, path = path, params = params or {} }
end

-- Returns a handler that returns `name` and the parameters of the request.
local function told(name)
  return function(req)
    local keys, words = {}, { name }
    for key in pairs(req.params) do keys[#keys + 1] = key end
    table.sort(keys)
    for _, key in ipairs(keys) do words[#words + 1] = key .. "=" .. req.params[key] end
    return table.concat(words, " ")
  end
end

function t.finds_the_most_specific_route()
  local router = veche.router()
    :get("/users/:id", told "user")
    :get("/users/me", told "me")
    :get("/users/:id/posts/:post", told "post")
    :get("/users/:who/name", told "name")
    :get("/files/*", told "files")
    :get("/docs/*page", told "docs")
    :get("/docs/index", told "index")
    :get("/:any", told "any")
    :get("/", told "root")
    :get("/a/b/", told "slash")
    :get("/caf\195\169/:x", told "cafe")
    :get("/50% off", told "off")
    :get("/50% off/:x", told "percent")
  for path, expected in pairs {
    ["/users/7"] = "user id=7",
    ["/users/me"] = "me",
    ["/users/me/name"] = "name who=me",
    ["/users/7/posts/8"] = "post id=7 post=8",
    ["/files/"] = "files *=",
    ["/files/a/b.txt"] = "files *=a/b.txt",
    ["/files/a//b"] = "files *=a//b",
    ["/docs/index"] = "index",
    ["/docs/index/2"] = "docs page=index/2",
    ["/docs"] = "any any=docs",
    ["/x y%2Fz"] = "any any=x y/z",
    ["/100%25"] = "any any=100%",
    ["/%2570"] = "any any=%70",
    ["/%252F"] = "any any=%2F",
    ["/50%25 off"] = "off",
    ["/50%25 off/1"] = "percent x=1",
    ["/files/a%2Fb/..%2F%2570"] = "files *=a%2Fb/..%2F%70",
    ["/"] = "root",
    ["/a/b/"] = "slash",
    ["/caf\195\169/1"] = "cafe x=1",
  } do
    check.equal(ask(router, "GET", path), expected)
  end
  for _, path in ipairs { "/users/", "/users/7/", "/users/7/posts", "/a/b", "/x/y", "*" } do
    check.equal(ask(router, "GET", path), 404)
  end
end

function t.parameters_stand_beside_those_of_the_configuration()
  local router = veche.router():get("/x/:id", told "x")
  check.equal(ask(router, "GET", "/x/1", { tenant = "a", id = "old" }), "x id=1 tenant=a")
end

function t.methods_that_a_path_does_not_take()
  local router = veche.router():get("/x", told "x"):post("/x", told "post"):delete("/y/:id", told "delete")
  router:route("PURGE", "/y/:id", told "purge")
  local status, headers = ask(router, "PUT", "/x")
  check.equal(status, 405)
  check.equal(headers.Allow, "GET, HEAD, OPTIONS, POST")
  status, headers = ask(router, "GET", "/y/1")
  check.equal(status, 405)
  check.equal(headers.Allow, "DELETE, OPTIONS, PURGE")
  check.equal(ask(router, "PURGE", "/y/1"), "purge id=1")
  status, headers = ask(router, "OPTIONS", "/x")
  check.equal(status, 204)
  check.equal(headers.Allow, "GET, HEAD, OPTIONS, POST")
  check.equal(ask(router, "OPTIONS", "/z"), 404)
  check.equal(ask(router, "HEAD", "/x"), "x")
  check.equal(ask(router, "HEAD", "/y/1"), 405)
end

function t.a_method_may_be_elsewhere()
  local router = veche.router():get("/x/new", told "new"):post("/x/:id", told "post")
  check.equal(ask(router, "POST", "/x/new"), "post id=new")
  local _, headers = ask(router, "PUT", "/x/new")
  check.equal(headers.Allow, "GET, HEAD, OPTIONS, POST")
end

function t.any_takes_what_is_left()
  local router = veche.router():any("/x", told "any"):put("/x", told "put"):head("/x", told "head")
  router:options("/x", told "options")
  check.equal(ask(router, "PUT", "/x"), "put")
  check.equal(ask(router, "BREW", "/x"), "any")
  check.equal(ask(router, "HEAD", "/x"), "head")
  check.equal(ask(router, "OPTIONS", "/x"), "options")
  local inner = veche.router():patch("/in/:id", told "inner")
  check.equal(ask(veche.router():any("/in/*", inner), "PATCH", "/in/1"), "inner *=1 id=1")
end

function t.before_may_answer()
  local seen = {}
  local router = veche.router():get("/x", told "x")
  router:before(function() seen[#seen + 1] = "first" end)
  router:before(function(req)
    seen[#seen + 1] = "second"
    if req.stop then return 401, { A = "b" }, "no" end
  end)
  check.equal(ask(router, "GET", "/x"), "x")
  check.equal(table.concat(seen, " "), "first second")
  local status, headers, body = router { method = "GET", path = "/x", params = {}, stop = true }
  check.equal(status, 401)
  check.equal(headers.A, "b")
  check.equal(body, "no")
  check.equal(ask(router, "GET", "/nothing"), 404)
  check.equal(#seen, 4)
end

function t.otherwise_answers_what_is_not_there()
  local router = veche.router():get("/x", told "x"):otherwise(function(req) return 410, req.path end)
  local status, body = ask(router, "GET", "/y")
  check.equal(status, 410)
  check.equal(body, "/y")
  check.equal(ask(router, "PUT", "/x"), 405)
end

function t.routes_may_wait()
  local router = veche.router():get("/x/:id", function(req)
    veche.sleep(0.01)
    return req.params.id
  end)
  check.equal(ask(router, "GET", "/x/9"), "9")
end

function t.bad_arguments()
  local router = veche.router()
  local function f() end
  check.fails("bad argument #1 to 'router:get': expected a path of at most 1024 bytes", router.get, router, "x", f)
  check.fails("bad argument #1 to 'router:get': expected a path", router.get, router, nil, f)
  check.fails("bad argument #1 to 'router:get': expected a path", router.get, router, "/x?y", f)
  check.fails("bad argument #1 to 'router:get': expected a path", router.get, router, "/" .. ("x"):rep(1024), f)
  check.fails("bad argument #2 to 'router:get': a function expected", router.get, router, "/x", {})
  check.fails("a parameter has no name, or two parameters have the same name", router.get, router, "/:", f)
  check.fails("a parameter has no name, or two parameters have the same name", router.get, router, "/:a/:a", f)
  check.fails("the * is not at the end", router.get, router, "/*/a", f)
  check.fails("bad argument #1 to 'router:get': a router expected", router.get, "/x", f)
  check.fails("bad argument #1 to 'router:route': a method in capitals", router.route, router, "get", "/x", f)
  check.fails("bad argument #3 to 'router:route': a function expected", router.route, router, "GET", "/x")
  check.fails("bad argument #1 to 'router:before': a function expected", router.before, router, 1)
  check.fails("bad argument #1 to 'router:otherwise': a function expected", router.otherwise, router)
  router:get("/x/:a", f)
  check.fails("a function is already set for GET /x/:b", router.get, router, "/x/:b", f)
  router:any("/x", f)
  check.fails("a function is already set for any method of /x", router.any, router, "/x", f)
  check.survives(3, router.get, veche.router(), "/x", f)
  check.survives(4, router.route, veche.router(), "GET", "/x", f)
end

return t
