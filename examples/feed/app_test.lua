-- Tests of the feed: `veche test` in this folder runs them. The test plays the source of the prices.
local test = require "veche.test"

local SOURCE = "ws://127.0.0.1:8080/source"

test.case("prices reach all clients, and later clients get the last one", function()
  local source = test.stub_websocket(SOURCE):accept()
  local ann = test.connect("/feed")
  ann:expect { type = "source", n = test.any("number"), open = true }
  source:send { symbol = "TEA", price = 12.5 }
  source:send { symbol = "TEA", price = 12.75 }
  ann:expect { type = "price", n = test.any("number"), symbol = "TEA", price = 12.5 }
  ann:expect { type = "price", n = test.any("number"), symbol = "TEA", price = 12.75 }
  local heard = test.connect("/feed"):take()
  test.equal(#heard, 2)
  test.match(table.concat(heard), "12%.75")
end)

test.case("a price not confirmed for a minute is not sent to new clients", function()
  local source = test.stub_websocket(SOURCE):accept()
  source:send { symbol = "TEA", price = 12.5 }
  test.advance(59)
  test.equal(#test.connect("/feed"):take(), 2)
  test.advance(2)
  local heard = test.connect("/feed"):take()
  test.equal(#heard, 1)
  test.match(heard[1], '"source"')
end)

test.case("what the source should not say is ignored", function()
  local source = test.stub_websocket(SOURCE):accept()
  local ann = test.connect("/feed")
  ann:expect(test.like('"open":true'))
  for _, nonsense in ipairs { "{", "7", '{"symbol":"","price":1}', '{"symbol":"TEA","price":"1"}', "[]" } do
    source:send(nonsense)
  end
  ann:expect_nothing()
  source:send(("x"):rep(5000))
  source:expect_close(1009)
end)

test.case("a lost source is dialed again, and the page is notified", function()
  local server = test.stub_websocket(SOURCE)
  local source = server:accept()
  local ann = test.connect("/feed")
  ann:expect(test.like('"open":true'))
  test.stub_websocket(SOURCE, { fails = "unreachable" })
  source:drop()
  ann:expect { type = "source", n = test.any("number"), open = false }
  test.advance(60)
  ann:expect_nothing()
  source = test.stub_websocket(SOURCE):accept { within = 15 }
  ann:expect { type = "source", n = test.any("number"), open = true }
  source:send { symbol = "FUR", price = 210 }
  ann:expect(test.like('"FUR"'))
end)
