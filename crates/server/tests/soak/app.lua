-- The application of the soak test: it does what clients request, including errors and endless loops.
local veche = require "veche"
local VERSION = 0
local app, counts = {}, veche.dict("counts")

local function deep(n)
  if n == 0 then error("as asked") end
  return deep(n - 1) .. ""
end

local asked = {
  echo = function(conn, rest) conn:send("echo " .. rest) end,
  wait = function(conn, rest)
    veche.sleep(tonumber(rest))
    conn:send("waited " .. rest)
  end,
  say = function(_, rest) veche.publish("room", "said " .. rest) end,
  count = function(conn, rest)
    counts:incr(rest)
    counts:set("short:" .. rest .. math.random(1000), ("x"):rep(100), 1)
    conn.attributes.count = (conn.attributes.count or 0) + 1
    conn:send("count " .. conn.attributes.count)
  end,
  spawn = function(conn, rest)
    local group, sum = veche.waitgroup(), 0
    for i = 1, tonumber(rest) do
      group:add(1)
      veche.spawn(function()
        veche.sleep(math.random() / 100)
        sum = sum + i
        group:done()
      end)
    end
    group:wait()
    conn:send("sum " .. sum)
  end,
  after = function(conn, rest)
    local cancelled = veche.timer.after(60, conn.send, conn, "never")
    veche.timer.after(tonumber(rest), function()
      cancelled:cancel()
      conn:send("after " .. rest)
    end)
  end,
  every = function(conn, rest)
    local left, task = tonumber(rest), nil
    task = veche.timer.every(0.005, function()
      left = left - 1
      -- `send` fails if the connection has closed or is handled by newer code; the timer then ends.
      if left == 0 or not conn:send("tick") then task:cancel() end
    end)
  end,
  fail = function() deep(20) end,
  loop = function() while true do end end,
}

function app.handshake(req)
  if req.query.key == "wrong" then return 401, "no\n" end
end

function app.open(conn)
  if conn.query.room then conn:subscribe("room") end
  conn:send("open")
end

function app.message(conn, data)
  local word, rest = data:match("^(%a+) ?(.*)$")
  asked[word](conn, rest)
end

function app.close() counts:incr("closed") end

function app.request(req)
  local word = req.query.word
  if word == "wait" then veche.sleep(0.01) end
  if word == "fail" then error("request as asked") end
  if word == "loop" then while true do end end
  return { version = VERSION, posted = req.json }
end

function app.stop() veche.sleep(0.05) end

return app
