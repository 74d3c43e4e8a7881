-- Users of the push demo, simulated by a script: each loads the page, subscribes to "news", publishes now and then, and
-- receives the publications of the others.
--   make run                                                                     in one terminal
--   veche bench script examples/bench/users.lua http://127.0.0.1:8080 -c 200     in another
-- What a script can call is in docs/guide/benchmarking.md, "Users that a script plays".

local veche = require "veche"
local bench = require "veche.bench"
local json = veche.json

-- Publications carry their send time, so that receivers can compute the latency.
local function hear(publication)
  local sent = publication.data.sent
  if sent then bench.record("delivery", bench.now() - sent) end
end

-- Reads replies and pushes of Centrifugo's protocol until the reply to command `id` arrives or
-- `seconds` have passed.
local function read(ws, id, seconds)
  local until_s = bench.now() + seconds
  while not bench.is_over() do
    local data, why = ws:receive(math.max(0.001, until_s - bench.now()))
    if not data then
      if why == "timeout" then return nil end
      error("the connection was closed with " .. tostring(why))
    end
    for line in data:gmatch("[^\n]+") do
      local message = json.decode(line)
      if next(message) == nil then
        ws:send("{}") -- a ping
      elseif message.push and message.push.pub then
        hear(message.push.pub)
      elseif message.id and message.id == id then
        assert(not message.error, line)
        return message
      end
    end
  end
end

local function command(ws, id, name, parameters)
  ws:send(json.encode { id = id, [name] = parameters })
  return assert(read(ws, id, 5), "no answer to " .. name)
end

bench.user(function(user)
  bench.action("page", function()
    local answer = veche.http.get(user.url .. "/")
    assert(answer.status == 200, "status " .. answer.status)
  end)
  local ws = bench.action("connect", function()
    local ws = veche.websocket.connect(user.url:gsub("^http", "ws") .. "/connection/websocket?user=bench" .. user.number)
    command(ws, 1, "connect", {})
    return ws
  end)
  bench.action("subscribe", command, ws, 2, "subscribe", { channel = "news" })
  for _ = 1, 5 do
    read(ws, nil, 1 + math.random() * 2)
    bench.action("publish", function()
      local answer = veche.http.post(user.url .. "/api/publish", { json = { channel = "news", data = { sent = bench.now() } } },
        { headers = { ["X-API-Key"] = "demo" } })
      assert(answer.status == 200, "status " .. answer.status)
    end)
  end
  ws:close()
end)
