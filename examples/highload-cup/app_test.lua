-- Tests the rules of the service; `veche test` in this folder runs the tests. Each case begins with empty
-- tables, on the first of January 2026. `oracle.py` checks the responses to thousands of requests to a real
-- server.
local test = require "veche.test"

local function post(path, body) return test.request("POST " .. path, type(body) == "string" and { body = body } or { json = body }) end

local function accepted(path, body)
  local response = post(path, body)
  test.equal({ response.status, response.body }, { 200, "{}" })
end

local function refused(path, body) test.equal(post(path, body).status, 400) end

local function is(path, expected) test.equal(test.request(path).json, expected) end

local BORN_1986 = 504921600                      -- 1986-01-01: forty on the day

local ann = { id = 1, email = "ann@mail.ru", first_name = "Анна", last_name = "Терленова", gender = "f", birth_date = BORN_1986 }
local ivan = { id = 2, email = "ivan@mail.ru", first_name = "Иван", last_name = "Фетатосян", gender = "m", birth_date = -1 }
local bridge = { id = 10, place = "Мост \"Новый\"", country = "Кот-д'Ивуар", city = "Мосград", distance = 6 }
local tower = { id = 11, place = "Башня", country = "Россия", city = "Москва", distance = 0 }

local function visit(id, user, location, visited_at, mark)
  local row = { id = id, user = user, location = location, visited_at = visited_at, mark = mark }
  accepted("/visits/new", row)
  return row
end

local function changed(row, by)
  local copy = {}
  for name, value in pairs(row) do copy[name] = value end
  for name, value in pairs(by) do copy[name] = value end
  return copy
end

test.before_each(function()
  accepted("/users/new", ann)
  accepted("/users/new", ivan)
  accepted("/locations/new", bridge)
  accepted("/locations/new", tower)
end)

test.case("stored entities are returned as JSON", function()
  is("/users/1", ann)
  is("/locations/10", bridge)
  local first = visit(100, 1, 10, 50, 5)
  is("/visits/100?query_id=7", first)
  local response = test.request("/visits/100")
  test.equal(response.headers["content-type"], "application/json")
  test.equal(response.headers["content-length"], tostring(#response.body))
end)

test.case("unknown entities are 404, whatever the query and the body", function()
  for _, path in ipairs {
    "/", "/users", "/users/3", "/users/abc", "/users/1.0", "/users/-1", "/users/99999999999", "/users/1/", "/user/1",
    "/users/1/avg", "/locations/10/visits", "/users/3/visits?fromDate=x", "/locations/3/avg?gender=x", "POST /users/3",
    "POST /visits/1/new", "POST /new", "POST /users",
  } do
    test.equal({ path, test.request(path, { body = path:find("POST") and "no JSON" or nil }).status }, { path, 404 })
  end
end)

test.case("a user's visits are ordered by date, and filtered", function()
  is("/users/1/visits", { visits = {} })
  test.equal(test.request("/users/1/visits").body, '{"visits":[]}')
  visit(100, 1, 10, 300, 1)
  visit(101, 1, 11, 100, 2)
  visit(102, 1, 10, 200, 3)
  visit(103, 2, 10, 150, 4)
  local at_100 = { mark = 2, visited_at = 100, place = "Башня" }
  local at_200 = { mark = 3, visited_at = 200, place = bridge.place }
  local at_300 = { mark = 1, visited_at = 300, place = bridge.place }
  local function visits(query, ...) is("/users/1/visits" .. query, { visits = { ... } }) end
  visits("", at_100, at_200, at_300)
  visits("?fromDate=100", at_200, at_300)
  visits("?fromDate=99&toDate=300", at_100, at_200)
  visits("?toDate=99999999999&fromDate=-99999999999", at_100, at_200, at_300)
  visits("?country=%D0%A0%D0%BE%D1%81%D1%81%D0%B8%D1%8F", at_100)
  visits("?country=%D0%9A%D0%BE%D1%82-%D0%B4%27%D0%98%D0%B2%D1%83%D0%B0%D1%80&toDate=300", at_200)
  visits("?toDistance=6", at_100)
  visits("?toDistance=7&country=x")
  for _, query in ipairs { "fromDate=", "fromDate=x", "toDate=1.5", "toDistance=0x10", "toDistance=1e1", "fromDate=%201" } do
    test.equal({ query, test.request("/users/1/visits?" .. query).status }, { query, 400 })
  end
end)

test.case("a place's mean mark is rounded half up, and filtered", function()
  test.equal(test.request("/locations/10/avg").json.avg, 0)
  visit(100, 1, 10, 100, 5)
  visit(101, 2, 10, 200, 3)
  visit(102, 1, 10, 300, 3)
  local function average(query, expected) is("/locations/10/avg" .. query, { avg = expected }) end
  average("", 3.66667)
  average("?fromDate=100", 3)
  average("?toDate=300&gender=f", 5)
  average("?gender=m&fromDate=200", 0)
  -- User 1 turns exactly forty today, so she is neither older nor younger than forty.
  average("?fromAge=40&gender=f", 0)
  average("?toAge=40&gender=f", 0)
  average("?fromAge=39&gender=f", 4)
  average("?toAge=41", 4)
  average("?fromAge=41", 3)
  for _, query in ipairs { "gender=x", "gender=", "fromAge=", "toAge=x", "fromDate=1.5", "toDate=null" } do
    test.equal({ query, test.request("/locations/10/avg?" .. query).status }, { query, 400 })
  end
end)

test.case("an update changes what it names, and moves a visit", function()
  visit(100, 1, 10, 100, 5)
  accepted("/visits/100", { user = 2, location = 11, visited_at = 7 })
  is("/visits/100", { id = 100, user = 2, location = 11, visited_at = 7, mark = 5 })
  is("/users/1/visits", { visits = {} })
  is("/users/2/visits", { visits = { { mark = 5, visited_at = 7, place = "Башня" } } })
  is("/locations/10/avg", { avg = 0 })
  is("/locations/11/avg", { avg = 5 })
  accepted("/locations/11?query_id=1", { place = "Шпиль" })
  is("/users/2/visits", { visits = { { mark = 5, visited_at = 7, place = "Шпиль" } } })
  accepted("/users/1", { email = "ann@list.me" })
  accepted("/users/2", { email = "ann@mail.ru" })                 -- the address is free now
  is("/users/1", changed(ann, { email = "ann@list.me" }))
end)

test.case("a bad body is 400, and changes nothing", function()
  local here = visit(100, 1, 10, 100, 5)
  local null = require("veche").json.null
  for _, bad in ipairs {
    "", "null", "[]", "no JSON", '{"email":"x@y.z"', { id = 5 }, { email = 5 }, { email = null }, { email = "ivan@mail.ru" },
    { email = ("я"):rep(101) }, { first_name = ("я"):rep(51) }, { gender = "x" }, { gender = true }, { birth_date = "1" },
    { birth_date = 1.5 }, { birth_date = null }, { first_name = "x", last_name = {} }, { nick = "x" },
  } do
    refused("/users/1", bad)
    is("/users/1", ann)
  end
  for _, bad in ipairs {
    { mark = 6 }, { mark = -1 }, { mark = "1" }, { user = 3 }, { location = 3 }, { user = 2, location = 3 }, { user = "2" },
    { user = 2, mark = null }, { visited_at = true, user = 2 }, { id = 100 },
  } do
    refused("/visits/100", bad)
    is("/visits/100", here)
  end
  is("/users/2/visits", { visits = {} })
  accepted("/users/1", { first_name = ("я"):rep(50), email = ("я"):rep(100) })
end)

test.case("new entities have all fields, and a unique id and address", function()
  local maria = { id = 3, email = "maria@mail.ru", first_name = "М", last_name = "Я", gender = "f", birth_date = 0 }
  refused("/users/new", changed(maria, { id = 1 }))
  refused("/users/new", changed(maria, { email = ann.email }))
  for name in pairs(maria) do
    local lacks = changed(maria, {})
    lacks[name] = nil
    refused("/users/new", lacks)
  end
  test.equal(test.request("/users/3").status, 404)
  accepted("/users/new", maria)
  refused("/visits/new", { id = 100, user = 4, location = 10, visited_at = 0, mark = 0 })
  refused("/visits/new", { id = 100, user = 3, location = 4, visited_at = 0, mark = 0 })
  refused("/visits/new", { id = 100, user = 3, location = 10, visited_at = 0, mark = 6 })
  refused("/locations/new", changed(tower, { id = 12, distance = 4294967296 }))
  accepted("/locations/new", changed(tower, { id = 12, distance = 4294967295, country = ("я"):rep(50) }))
end)
