-- Tests of the chat's server side: `CHAT_SECRET=$(openssl rand -hex 32) veche test` in this folder runs them.
-- Each test begins without registered users.
local veche = require "veche"
local test = require "veche.test"

local base64, json = veche.base64, veche.json
local PASSWORD = "correct horse"

local function call(method, path, body, session, remote)
  return test.request { method = method, path = path, json = body, cookies = { session = session }, remote = remote }
end

-- Registers a user; returns the session.
local function register(name, remote)
  local answer = call("POST", "/api/register", { name = name, password = PASSWORD }, nil, remote)
  test.equal(answer.status, 201)
  return (answer.headers["set-cookie"]:match("^session=([^;]+)"))
end

local function log_in(name)
  local answer = call("POST", "/api/login", { name = name, password = PASSWORD })
  return (answer.headers["set-cookie"]:match("^session=([^;]+)"))
end

-- Tries to log in; returns the status, and the cookie that identifies the device from then on.
local function try(name, password, remote, device)
  local body = { name = name, password = password }
  local answer = test.request { path = "/api/login", json = body, remote = remote, cookies = { device = device } }
  return answer.status, (answer.headers["set-cookie"] or ""):match("device=([^;]+)")
end

test.case("a registration opens a session that no script and no other site can use", function()
  local answer = call("POST", "/api/register", { name = "Ann", password = PASSWORD })
  test.equal({ answer.status, answer.json }, { 201, { name = "ann" } })
  test.match(answer.headers["set-cookie"], "HttpOnly")
  test.match(answer.headers["set-cookie"], "SameSite=Strict")
  -- The response also sets the device's cookie, which browsers send only to the login.
  test.match(answer.headers["set-cookie"], "\ndevice=[^\n]*; Path=/api/login")
  test.equal(test.published("people:all"), { '{"registered":"ann"}' })
end)

test.case("a name is unique in any spelling", function()
  register("ann")
  test.equal(call("POST", "/api/register", { name = "ANN", password = PASSWORD }).status, 409)
end)

test.case("invalid names and passwords are refused with a reason", function()
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

test.case("only the right password is accepted, and guesses are limited", function()
  register("ann")
  test.equal((try("Ann", PASSWORD)), 200)
  test.equal((try("ann", PASSWORD .. "!")), 403)
  test.equal((try("nobody", PASSWORD)), 403)
  for _ = 1, 8 do test.equal((try("ann", "wrong password")), 403) end
  -- A successful login resets the attempts.
  test.equal((try("ann", PASSWORD)), 200)
  for _ = 1, 10 do test.equal((try("ann", "wrong password")), 403) end
  test.equal((try("ann", PASSWORD)), 429)
  test.advance(61)
  test.equal((try("ann", PASSWORD)), 200)
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

test.case("a token names the user and its expiry", function()
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

test.case("a logout ends the session", function()
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

test.case("a name allows twenty wrong passwords in a quarter of an hour, over all addresses", function()
  register("ann")
  local judged = 0
  for number = 1, 60 do
    local status = try("ann", "guess number " .. number, "192.0.2." .. number)
    if status == 403 then judged = judged + 1 else test.equal(status, 429) end
  end
  test.equal(judged, 20)
  test.advance(901)
  test.equal((try("ann", PASSWORD, "192.0.2.1")), 200)
end)

test.case("all of an IPv6 network is one address", function()
  register("ann")
  for number = 1, 10 do test.equal((try("ann", "wrong password", ("2001:db8::%x"):format(number))), 403) end
  test.equal((try("ann", PASSWORD, "2001:db8::ffff")), 429)
  test.equal((try("ann", PASSWORD, "2001:db8:0:1::1")), 200)
end)

test.case("networks of addresses", function()
  local limits = require "limits"
  for address, network in pairs {
    ["192.0.2.1"] = "192.0.2.1", ["::ffff:192.0.2.1"] = "192.0.2.1", ["::1"] = "0:0:0:0::/64", ["::"] = "0:0:0:0::/64",
    ["2001:db8:1:2:3:4:5:6"] = "2001:db8:1:2::/64", ["2001:db8:1:2::"] = "2001:db8:1:2::/64",
    ["2001:db8::1"] = "2001:db8:0:0::/64", ["2001:db8::2:3:4:5:6"] = "2001:db8:0:2::/64", ["fe80::1:2"] = "fe80:0:0:0::/64",
  } do
    test.equal(limits.network(address), network)
  end
end)

test.case("guesses do not lock out a known device", function()
  register("ann")
  local _, device = try("ann", PASSWORD, "192.0.2.1")
  for number = 1, 60 do try("ann", "guess number " .. number, "198.51.100." .. number) end
  -- Some guesses come from the device's own address.
  for _ = 1, 70 do try("ann", "wrong password", "192.0.2.1") end
  test.equal((try("ann", PASSWORD, "203.0.113.1")), 429)
  test.equal((try("ann", PASSWORD, "192.0.2.1", device)), 200)
  test.equal((try("ann", PASSWORD, "203.0.113.1", device)), 200)
  -- A device's cookie is valid only if it is unchanged, and only for one user name. Password guesses from a device with
  -- a valid cookie are limited too.
  register("bob")
  for _ = 1, 20 do try("bob", "wrong password", "203.0.113.2") try("bob", "wrong password", "203.0.113.3") end
  test.equal((try("bob", PASSWORD, "203.0.113.4", device)), 429)
  for _, made_up in ipairs { "", "x", device .. "x", "9" .. device, device:gsub("%..*", "."), ("9"):rep(400) .. ".x" } do
    test.equal((try("ann", PASSWORD, "203.0.113.1", made_up)), 429)
  end
  for _ = 1, 20 do test.equal((try("ann", "wrong password", "203.0.113.1", device)), 403) end
  test.equal((try("ann", PASSWORD, "203.0.113.1", device)), 429)
  test.advance(91 * 24 * 3600)
  for _ = 1, 20 do try("ann", "wrong password", "203.0.113.2") try("ann", "wrong password", "203.0.113.3") end
  test.equal((try("ann", PASSWORD, "203.0.113.1", device)), 429)
end)

test.case("the cookie of a known device opens no session", function()
  register("ann")
  local _, device = try("ann", PASSWORD)
  test.equal(call("GET", "/api/token", nil, device).status, 401)
end)

test.case("an attempt that was not checked does not count", function()
  local limits = require "limits"
  for _, is_known in ipairs { false, true } do
    for _ = 1, 25 do limits.login("ann", "192.0.2.1", is_known).give_back() end
    local try = limits.login("ann", "192.0.2.1", is_known)
    try.give_back()
    for _ = 1, 10 do test.equal(limits.login("ann", "192.0.2.1", is_known) ~= nil, true) end
    test.equal(limits.login("ann", "192.0.2.1", is_known) ~= nil, is_known)
  end
end)

test.case("pages of other sites change nothing, not even by a logout", function()
  local ann = register("ann")
  register("bob")
  local function post(method, path, headers, body)
    return test.request { method = method, path = path, headers = headers, json = body, cookies = { session = ann } }
  end
  local others = {
    { Origin = "https://evil.example" }, { Origin = "null" }, { Origin = "http://localhost:8080.evil.example" },
    { Origin = "http://localhost:81" }, { ["Sec-Fetch-Site"] = "cross-site" }, { ["Sec-Fetch-Site"] = "same-site" },
    { ["Sec-Fetch-Site"] = "none" }, { Origin = "http://localhost:8080", ["Sec-Fetch-Site"] = "cross-site" },
    { Origin = "" },
  }
  for _, headers in ipairs(others) do
    headers.Host = "localhost:8080"
    for _, what in ipairs {
      { "POST", "/api/logout" }, { "POST", "/api/login", { name = "ann", password = PASSWORD } },
      { "POST", "/api/register", { name = "eve", password = PASSWORD } }, { "POST", "/api/dialogs", { with = "bob" } },
      { "DELETE", "/api/dialogs/bob" },
    } do
      local answer = post(what[1], what[2], headers, what[3])
      test.equal({ answer.status, answer.headers["set-cookie"] }, { 403 })
    end
    test.equal(post("GET", "/api/dialogs", headers).json, { dialogs = {} })
  end
  for _, headers in ipairs {
    {}, { Origin = "http://localhost:8080" }, { Origin = "https://LOCALHOST:8080" }, { ["Sec-Fetch-Site"] = "same-origin" },
  } do
    headers.Host = "localhost:8080"
    test.equal(post("POST", "/api/dialogs", headers, { with = "bob" }).status, 200)
  end
  test.equal(post("POST", "/api/logout", { Host = "localhost:8080", Origin = "http://localhost:8080" }).status, 204)
end)

local function begin(session, with, remote) return call("POST", "/api/dialogs", { with = with }, session, remote) end
local function list(session) return call("GET", "/api/dialogs", nil, session).json.dialogs end
local function leave(session, with) return call("DELETE", "/api/dialogs/" .. with, nil, session).status end

test.case("a dialogue begins with an invitation and exists for both when it is accepted", function()
  local ann, bob = register("ann"), register("bob")
  for _ = 1, 2 do test.equal(begin(ann, "Bob").json, { state = "sent" }) end
  test.equal(list(ann), { { with = "bob", state = "sent" } })
  test.equal(list(bob), { { with = "ann", state = "received" } })
  test.equal(test.published("#bob"), { '{"dialog":"ann","state":"received"}' })
  test.equal(call("GET", "/api/people?name=a", nil, bob).json.people[1].dialog, "received")
  for _ = 1, 2 do test.equal(begin(bob, "ann").json, { state = "accepted" }) end
  test.equal(list(ann), { { with = "bob", state = "accepted" } })
  test.equal(list(bob), { { with = "ann", state = "accepted" } })
  test.equal(test.published("#ann"), { '{"dialog":"bob","state":"sent"}', '{"dialog":"bob","state":"accepted"}' })
  -- The dialogue is permanent; an invitation expires.
  local eve = register("eve")
  begin(eve, "ann")
  test.advance(23 * 3600)
  test.equal(#list(ann), 2)
  test.advance(2 * 3600)
  test.equal(list(log_in("ann")), { { with = "bob", state = "accepted" } })
end)

test.case("dialogues with unknown users and with oneself are refused", function()
  local ann = register("ann")
  for _, with in ipairs { "nobody", "ann", "a,b" } do test.equal(begin(ann, with).status, 404) end
  test.equal(call("POST", "/api/dialogs", "text", ann).status, 404)
  for _, with in ipairs { "nobody", "ann", "a,b", ("x"):rep(2000) } do test.equal(leave(ann, with), 404) end
  test.equal(call("GET", "/api/people?name=" .. ("x"):rep(2000), nil, ann).json, { people = {} })
end)

test.case("dialogues are left, invitations declined and taken back", function()
  local ann, bob = register("ann"), register("bob")
  begin(ann, "bob")
  test.equal(leave(ann, "bob"), 204)
  test.equal({ list(ann), list(bob) }, { {}, {} })
  -- A withdrawn invitation may be sent again. After a refusal, only the user who declined may
  -- invite on that day.
  begin(ann, "bob")
  test.equal(leave(bob, "ann"), 204)
  local answer = begin(ann, "bob")
  test.equal(answer.status, 409)
  test.match(answer.json.error, "bob does not want")
  test.equal(begin(bob, "ann").json, { state = "sent" })
  test.equal(begin(ann, "bob").json, { state = "accepted" })
  test.equal(leave(bob, "ann"), 204)
  test.equal({ list(ann), list(bob) }, { {}, {} })
  local told = test.published("#ann")
  test.equal(told[#told], '{"dialog":"bob","state":"none"}')
  test.advance(24 * 3600 + 1)
  test.equal(begin(log_in("ann"), "bob").json, { state = "sent" })
end)

test.case("a hundred throw-away accounts do not prevent new dialogues", function()
  local victim, friend = register("victim"), register("friend")
  for number = 1, 104 do
    local remote = "192.0.2." .. number
    test.equal(begin(register("bot" .. number, remote), "victim", remote).status, 200)
  end
  test.equal(begin(victim, "friend").json, { state = "sent" })
  test.equal(begin(friend, "victim").json, { state = "accepted" })
  local other = register("other")
  test.advance(1)
  test.equal(begin(other, "victim").json, { state = "sent" })
  -- The list has the latest invitations; a search by name finds the others too.
  local shown = list(victim)
  test.equal({ #shown, shown[1].with, shown[2].with }, { 51, "friend", "other" })
  test.equal(call("GET", "/api/people?name=bot1", nil, victim).json.people[1].dialog, "received")
  test.equal(begin(victim, "other").json, { state = "accepted" })
end)

test.case("invitations are limited by sender and by address", function()
  local ann = register("ann")
  for number = 1, 45 do register("user" .. number, "192.0.2." .. number) end
  for number = 1, 20 do test.equal(begin(ann, "user" .. number).status, 200) end
  test.equal(begin(ann, "user21").status, 429)
  -- Withdrawing an invitation does not make room for another one.
  test.equal(leave(ann, "user1"), 204)
  test.equal(begin(ann, "user21").status, 429)
  local bob, carl = register("bob"), register("carl")
  for number = 1, 20 do test.equal(begin(bob, "user" .. number).status, 200) end
  test.equal(begin(carl, "user1").status, 429)
  -- Even without the rate limits, a user has at most 20 unanswered invitations.
  local dialogs = require "dialogs"
  for number = 1, 20 do test.equal(dialogs.begin("ann", "user" .. number), "sent") end
  local _, why = dialogs.begin("ann", "user21")
  test.match(why, "20 people who have not answered")
end)

test.case("dialogues of a user are limited to the channels of a connection", function()
  local dialogs = require "dialogs"
  for number = 1, dialogs.MOST do
    test.equal(dialogs.begin("user" .. number, "ann"), "sent")
    test.equal(dialogs.begin("ann", "user" .. number), "accepted")
  end
  local state, why = dialogs.begin("ann", "bob")
  test.equal(state, nil)
  test.match(why, "100 people already. Leave")
  -- Others may still invite Ann, but she can accept only after she has left a dialogue.
  test.equal(dialogs.begin("bob", "ann"), "sent")
  test.equal(dialogs.begin("ann", "bob"), nil)
  test.equal(dialogs.leave("ann", "user7"), "accepted")
  test.equal(dialogs.begin("ann", "bob"), "accepted")
end)
