-- A source to try the feed with: the prices of a few goods, which change randomly.
local veche = require "veche"

local goods = { TEA = 12.5, SALT = 3.2, FUR = 210, HONEY = 18.4, WAX = 7.1 }

local app = {}

function app.start()
  if veche.worker ~= 0 then return end
  veche.timer.every(0.25, function()
    for symbol, price in pairs(goods) do
      if veche.random.number() < 0.4 then
        price = math.max(0.01, price * (0.99 + veche.random.number() / 50))
        goods[symbol] = price
        local rounded = math.floor(price * 100 + 0.5) / 100
        veche.publish("source", veche.json.encode({ symbol = symbol, price = rounded }))
      end
    end
  end)
end

function app.open(conn) conn:subscribe("source") end

return app
