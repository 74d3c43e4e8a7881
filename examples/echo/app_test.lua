-- Tests of the echo: `veche test` in this folder runs them.
local test = require "veche.test"

test.case("every message is echoed to its sender alone", function()
  local ann, bob = test.connect("/echo"), test.connect("/echo")
  ann:send("hello")
  ann:expect("hello")
  bob:expect_nothing()
end)

test.case("bytes stay bytes", function()
  local ann = test.connect("/echo")
  ann:send("\0\1\255", "binary")
  ann:expect("\0\1\255", { kind = "binary" })
  ann:close()
  ann:expect_close(1000)
end)

test.case("the page is there", function()
  local page = test.request("GET /")
  test.equal(page.status, 200)
  test.match(page.body, "<title>Echo</title>")
end)
