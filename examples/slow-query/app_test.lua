-- Tests of the slow queries: `veche test` in this folder runs them. They need no database, and the clock is
-- simulated.
local test = require "veche.test"
local veche = require "veche"

test.case("a request waits for its query", function()
  test.stub_mysql("select sleep(?)", function(_, seconds)
    veche.sleep(seconds)
    return 0
  end)
  local before = test.now()
  test.equal(test.request("/slow").body, "slept, and the database says 0\n")
  test.equal(test.now() - before, 1)
  test.equal(test.queries()[1].values, { 1 })
end)

test.case("requests wait beside each other", function()
  test.stub_mysql("select sleep(?)", function(_, seconds)
    veche.sleep(seconds)
    return 0
  end)
  local tasks = {}
  for place = 1, 100 do
    tasks[place] = veche.spawn(function() return test.request("/slow").status end)
  end
  for _, task in ipairs(tasks) do test.equal(task:join(), 200) end
  test.equal(test.now(), 1)
end)

test.case("a database that is gone is this request's error", function()
  test.stub_mysql("*", { fails = "connection_lost", words = "connection lost" })
  test.equal(test.request("/slow").status, 500)
  test.expect_error("mysql: connection lost")
end)
