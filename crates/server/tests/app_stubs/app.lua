-- The application under test: it calls MySQL, Redis, HTTP and other services, which `veche test` mocks.
local veche = require "veche"

local app, on = {}, {}

local db = veche.mysql.connect("mysql://app@db.example/shop?timeout=3")
local redis = veche.redis.connect("redis://cache.example/?timeout=2")
local feed

function on.find(conn)
  local ok, rows = pcall(db.query, db, "SELECT id, name\n  FROM users WHERE name LIKE ?", "A%")
  conn:send(ok and veche.json.encode(rows) or rows)
end

function on.count(conn) conn:send(tostring(db:value("SELECT COUNT(*) FROM users"))) end
function on.move(conn)
  local ok, why = pcall(db.transaction, db, function(tx)
    local left = tx:row("SELECT gold FROM users WHERE id = ?", 1).gold
    return tx:execute("UPDATE users SET gold = ?", left - 1).affected
  end)
  conn:send(tostring(why) .. " " .. tostring(veche.mysql.code(why)))
end

function on.cached(conn)
  local ok, value = pcall(redis.get, redis, "name")
  conn:send(tostring(value))
end

function on.pair(conn)
  local ok, values = pcall(redis.pipeline, redis, { { "INCR", "n" }, { "HGETALL", "h" } })
  conn:send(ok and veche.json.encode(values) or values)
end

function on.listen(conn)
  local news = redis:psubscribe("news.*")
  veche.spawn(function()
    while true do
      local message = news:receive(10)
      conn:send(message and message.channel .. ": " .. message.data or "quiet")
    end
  end)
end

function on.tell() redis:publish("news.own", "hello") end
function on.dial(conn)
  local ok, ws = pcall(veche.websocket.connect, "wss://feed.example/prices?of=tea",
    { protocols = { "v2", "v1" }, headers = { Authorization = "Bearer x" } })
  if not ok then return conn:send(ws) end
  feed = ws
  veche.spawn(function()
    while true do
      local data, kind = ws:receive()
      if not data then return conn:send("over " .. tostring(kind)) end
      conn:send(data)
    end
  end)
end

function on.ask() feed:send("more") end
function on.keep()
  veche.websocket.open("ws://10.0.0.1:9000", {
    reconnect = { min = 1, max = 8 },
    onopen = function(ws) ws:send("hi") end,
    onerror = function(_, why) veche.log.info("no", why) end,
  })
end

function on.price(conn)
  local answer = veche.http.get("https://api.example/price", { query = { of = "tea" } })
  conn:send(answer.status .. " " .. answer:json().price)
end

function on.stream(conn)
  local answer = veche.http.get("https://api.example/log", { stream = true })
  for part in answer:chunks() do conn:send(part) end
end

function app.message(conn, data) on[data](conn) end

return app
