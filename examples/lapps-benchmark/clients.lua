-- The same benchmark as that of LAppS: a service opens client connections to an echo server, sends
-- a message on each and sends it again after each echo. Every instance has its own connections;
-- instance 1 logs the totals of all.
local veche = require "veche"
local service = {}

local url = veche.config.url or "ws://127.0.0.1:8080/echo"
local connections = veche.config.connections or 100
local bytes = veche.config.bytes or 1024
local seconds = veche.config.seconds or 10

-- These counters are shared by all instances on all workers.
local open, echoed, wrong, over =
  veche.counter("open"), veche.counter("echoed"), veche.counter("wrong"), veche.counter("over")

-- Returns a message that is unique to a connection, so that a misdirected echo is noticed.
local function message_of(instance, number)
  local name = ("%d.%d "):format(instance, number)
  return name:rep(math.ceil(bytes / #name)):sub(1, bytes)
end

function service.run(instance, instances)
  local own, sockets = 0, {}
  for number = 1, connections do
    local message = message_of(instance, number)
    sockets[number] = veche.websocket.open(url, {
      onopen = function(ws)
        open:add()
        ws:send(message, "binary")
      end,
      onmessage = function(ws, data)
        if data ~= message then wrong:add() end
        own = own + 1
        ws:send(message, "binary")
      end,
      onerror = function(_, why) veche.log.error(why) end,
      onclose = function(_, code, reason)
        if over:get() == 0 and not veche.stopping() then veche.log.error("closed", code, reason) end
      end,
    })
  end

  local began, before
  while over:get() == 0 and not veche.stopping(0.2) do
    echoed:add(own)
    own = 0
    if instance == 1 and open:get() >= connections * instances then
      local now, total = veche.time.monotonic(), echoed:get()
      if not began then
        began, before = now, total
        print(("all %d are connected"):format(connections * instances))
      else
        local count, time = total - before, now - began
        print(("%d echoes of %d B in %.3f s: %d/s, %d wrong"):format(count, bytes, time, count / time, wrong:get()))
        if time >= seconds then over:add() end
      end
    end
  end
  for _, ws in ipairs(sockets) do ws:close() end
end

return service
