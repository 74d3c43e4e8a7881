-- Tests of the chat's server side: `CHAT_SECRET=$(openssl rand -hex 32) veche test` in this folder runs them.
-- Each begins with nobody registered.
local veche = require "veche"
local test = require "veche.test"

local base64, json = veche.base64, veche.json
local PASSWORD = "correct horse"

local function call(method, path, body, session)
  local headers = session and { Cookie = "session=" .. session } or {}
  return test.request { method = method, path = path, json = body, headers = headers }
end

-- Registers somebody; the session.
local function register(name)
  local answer = call("POST", "/api/register", { name = name, password = PASSWORD })
  test.equal(answer.status, 201)
  return (answer.headers["set-cookie"]:match("^session=([^;]+)"))
end

test.case("who registers has a session that no script and no other site can use", function()
  local answer = call("POST", "/api/register", { name = "Ann", password = PASSWORD })
  test.equal({ answer.status, answer.json }, { 201, { name = "ann" } })
  test.match(answer.headers["set-cookie"], "HttpOnly")
  test.match(answer.headers["set-cookie"], "SameSite=Strict")
  test.equal(test.published("people:all"), { '{"registered":"ann"}' })
end)

test.case("a name is one person's, however it is written", function()
  register("ann")
  test.equal(call("POST", "/api/register", { name = "ANN", password = PASSWORD }).status, 409)
end)

test.case("names and passwords that can't be are refused in words", function()
  for name, why in pairs {
    a = "2 to 20", [("x"):rep(21)] = "2 to 20", ["ann,bob"] = "begins with", ["#ann"] = "begins with", ["a/b"] = "begins with",
  } do
    local answer = call("POST", "/api/register", { name = name, password = PASSWORD })
    test.equal(answer.status, 400)
    test.match(answer.json.error, why)
  end
  test.match(call("POST", "/api/register", { name = "ann", password = "short" }).json.error, "8 to 200")
  for _, body in ipairs { { name = 7, password = PASSWORD }, { name = "ann" }, "text" } do
    test.equal(call("POST", "/api/register", body).status, 400)
  end
end)

test.case("the right password lets in, no other does, and guessing ends soon", function()
  register("ann")
  local function try(name, password) return call("POST", "/api/login", { name = name, password = password }).status end
  test.equal(try("Ann", PASSWORD), 200)
  test.equal(try("ann", PASSWORD .. "!"), 403)
  test.equal(try("nobody", PASSWORD), 403)
  for _ = 1, 8 do test.equal(try("ann", "wrong password"), 403) end
  -- Who gets in has all his tries again.
  test.equal(try("ann", PASSWORD), 200)
  for _ = 1, 10 do test.equal(try("ann", "wrong password"), 403) end
  test.equal(try("ann", PASSWORD), 429)
  test.advance(61)
  test.equal(try("ann", PASSWORD), 200)
end)

test.case("names are not tried one after the other, and no form of another site logs in", function()
  for number = 1, 60 do
    test.equal(call("POST", "/api/login", { name = "somebody" .. number, password = PASSWORD }).status, 403)
  end
  test.equal(call("POST", "/api/login", { name = "another", password = PASSWORD }).status, 429)
  register("ann")
  local answer = test.request {
    method = "POST", path = "/api/login", headers = { ["Content-Type"] = "text/plain" },
    body = json.encode { name = "ann", password = PASSWORD },
  }
  test.equal(answer.status, 400)
end)

test.case("a token says who it is and when it ends", function()
  test.equal(call("GET", "/api/token").status, 401)
  test.equal(call("GET", "/api/token", nil, "made up").status, 401)
  local answer = call("GET", "/api/token", nil, register("ann")).json
  test.equal(answer.name, "ann")
  local header, claims, signature = answer.token:match("^([^.]+)%.([^.]+)%.([^.]+)$")
  test.equal(json.decode(base64.decode_url(header)), { alg = "HS256", typ = "JWT" })
  local now = math.floor(veche.time.now())
  test.equal(json.decode(base64.decode_url(claims)), { sub = "ann", iat = now, exp = now + 600 })
  test.equal(#base64.decode_url(signature), 32)
end)

test.case("who has logged out is nobody", function()
  local ann = register("ann")
  test.equal(call("GET", "/api/people", nil, ann).status, 200)
  test.equal(call("POST", "/api/logout", nil, ann).status, 204)
  test.equal(call("GET", "/api/people", nil, ann).status, 401)
end)

test.case("people are found by the beginning of their names, oneself is not among them", function()
  local ann = register("ann")
  for _, name in ipairs { "bob", "bora", "carl" } do register(name) end
  local function names(query)
    local found = {}
    for _, one in ipairs(call("GET", "/api/people" .. query, nil, ann).json.people) do
      found[#found + 1] = one.name
      test.equal(one.online, false)
    end
    return found
  end
  test.equal(names(""), { "bob", "bora", "carl" })
  test.equal(names("?name=Bo"), { "bob", "bora" })
  test.equal(names("?name=x"), {})
end)

test.case("a dialogue is known to both, and begun once", function()
  local ann, bob = register("ann"), register("bob")
  for _ = 1, 2 do test.equal(call("POST", "/api/dialogs", { with = "Bob" }, ann).status, 200) end
  test.equal(call("GET", "/api/dialogs", nil, ann).json, { dialogs = { "bob" } })
  test.equal(call("GET", "/api/dialogs", nil, bob).json, { dialogs = { "ann" } })
  test.equal(test.published("#bob"), { '{"dialog":"ann"}' })
  for _, with in ipairs { "nobody", "ann", "a,b" } do
    test.equal(call("POST", "/api/dialogs", { with = with }, ann).status, 404)
  end
  test.equal(call("POST", "/api/dialogs", "text", ann).status, 404)
end)

test.case("nobody has more dialogues than a connection has room for", function()
  local dialogs = require "dialogs"
  for number = 1, dialogs.MOST do test.equal(dialogs.begin("ann", "user" .. number), true) end
  local is_new, why = dialogs.begin("bob", "ann")
  test.equal(is_new, nil)
  test.match(why, "ann talks to 100")
  test.equal(dialogs.begin("user7", "ann"), false)
end)

test.case("passwords are hashed as RFC 7914 (section 11) and others have it", function()
  local pbkdf2 = require "pbkdf2"
  test.equal(pbkdf2("passwd", "salt", 1), "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc")
  test.equal(pbkdf2("password", "salt", 4096), "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a")
end)
