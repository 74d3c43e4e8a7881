-- A feed. Another WebSocket server sends prices; all clients connected here receive them.
--
--   the source sends                        browsers receive
--   {"symbol":"TEA","price":12.5}           {"type":"price","n":7,"symbol":"TEA","price":12.5}
--                                           {"type":"source","n":8,"open":true}, or false: the source is gone
--
-- One worker reads the source and publishes to all. The last price of each symbol is stored in a dict that all workers
-- share, so new clients get it at once. Each message has a number, by which a page knows which of two is newer.

local veche = require "veche"
local json = veche.json

local SYMBOL_BYTES_MAX = 32
local SYMBOLS_MAX = 1000

-- Prices older than this, in seconds, are not sent to new clients.
local LASTING = 60

local latest = veche.dict("feed")
local numbers = veche.counter("feed")

-- Stores a message under its key for new clients, and publishes it to the connected ones.
local function tell(key, message, ttl)
  message.n = numbers:add()
  local text = json.encode(message)
  latest:set(key, text, ttl)
  veche.publish("feed", text)
end

local function tell_source(is_open) tell("source", { type = "source", open = is_open }) end

-- The source is not trusted: its messages may be anything.
local function take(data)
  local ok, tick = pcall(json.decode, data)
  if not ok or type(tick) ~= "table" then return nil, "no JSON object" end
  local symbol, price = tick.symbol, tick.price
  if type(symbol) ~= "string" or #symbol == 0 or #symbol > SYMBOL_BYTES_MAX then return nil, "no symbol" end
  if type(price) ~= "number" then return nil, "no price" end
  local key = "price:" .. symbol
  if latest:get(key) == nil and latest:count() > SYMBOLS_MAX then return nil, "too many symbols" end
  tell(key, { type = "price", symbol = symbol, price = price }, LASTING)
  return true
end

local app = {}

function app.start()
  -- Every worker runs this file. One connection to the source is enough: `publish` reaches the clients of all workers.
  if veche.worker ~= 0 then return end
  tell_source(false)
  veche.websocket.open(veche.config.source, {
    reconnect = { min = 0.5, max = 15 },
    message_bytes_max = 4096,
    onopen = function(ws)
      veche.log.info("listening to", ws.url)
      tell_source(true)
    end,
    onmessage = function(_, data)
      local ok, why = take(data)
      if not ok then veche.log.debug("the source sent something else:", why) end
    end,
    onclose = function(_, code, reason)
      veche.log.warn("the source has closed", code, reason)
      tell_source(false)
    end,
    onerror = function(_, why) veche.log.warn("no source:", why) end,
  })
end

function app.open(conn)
  -- Subscribing before reading means that no message is missed. Duplicates have the same number.
  conn:subscribe("feed")
  for _, key in ipairs(latest:keys("", SYMBOLS_MAX + 1)) do
    local text = latest:get(key)
    if text then conn:send(text) end
  end
end

return app
