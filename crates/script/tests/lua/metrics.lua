local check = require "check"
local veche = require "veche"
local metrics = veche.metrics

local t = {}

function t.all_kinds_count()
  local counter = metrics.counter("orders_total", "Orders", { "kind", "paid" })
  counter:add(2.5, "book", true)
  metrics.counter("orders", "Another help", { "kind", "paid" }):add(1, "book", 7)
  metrics.gauge("temperature", "Of the room"):set(-3)
  metrics.gauge("temperature", "Of the room"):add()
  metrics.histogram("seconds", "How long"):observe(0.3)
  metrics.histogram("bytes", "How much", { 1, 10, 100 }, { "way" }):observe(1e9, "in")
end

function t.bad_arguments_to_make_one()
  local counter, histogram = metrics.counter, metrics.histogram
  check.fails("bad argument #1 to 'metrics.counter': a string expected", counter)
  check.fails("bad argument #2 to 'metrics.counter': a string expected", counter, "x")
  check.fails("bad argument #2 to 'metrics.counter': a help text of at most 1024 bytes", counter, "x", ("x"):rep(2000))
  check.fails("without control characters and backslash", counter, "x", "a\nveche_fake 1")
  for _, name in ipairs { "", "9a", "a-b", "a\0", "é", "a{b}" } do
    check.fails("bad argument #1 to 'metrics.counter': a name", counter, name, "help")
  end
  check.fails("only a counter's name may end in _total", counter, "x_sum", "help")
  check.fails("names that begin with veche_ are reserved for the server", counter, "veche_pushes", "help")
  check.fails("bad argument #3 to 'metrics.counter': a list of label names expected", counter, "x", "help", 7)
  check.fails("bad argument #3 to 'metrics.counter': a metric may have at most 8 different labels", counter, "x", "help", { "a", "a" })
  check.fails("bad argument #3 to 'metrics.counter': a metric may have at most 8 different labels", counter, "x", "help", { "le" })
  check.fails("bad argument #4 to 'metrics.histogram': a metric may have at most 8", histogram, "x", "help", { 1 }, { "a b" })
  for _, buckets in ipairs { {}, { 1, 1 }, { 2, 1 }, { 0 / 0 }, { 1 / 0 }, { "x" } } do
    check.fails("bad argument #3 to 'metrics.histogram': a list of at most 64", histogram, "x", "help", buckets)
  end
  counter("one", "help", { "a" })
  check.fails("the metric already exists as a counter", counter, "one", "help")
  check.fails("the metric already exists as a counter", metrics.gauge, "one", "help", { "a" })
  check.survives(3, counter, "y", "help", {})
  check.survives(4, histogram, "z", "help", { 1 }, {})
end

function t.bad_arguments_to_count()
  local counter = metrics.counter("counted", "help", { "kind" })
  check.fails("bad argument #1 to 'counter:add': a finite number", counter.add, counter, -1, "x")
  check.fails("bad argument #1 to 'counter:add': a finite number", counter.add, counter, 0 / 0, "x")
  check.fails("bad argument #1 to 'counter:add': a finite number", counter.add, counter, 1 / 0, "x")
  check.fails("bad argument #1 to 'counter:add': a finite number", counter.add, counter, "1", "x")
  check.fails("bad argument #2 to 'counter:add': the number of label values must be 1", counter.add, counter, 1)
  check.fails("bad argument #2 to 'counter:add': the number of label values must be 1", counter.add, counter, 1, "a", "b")
  check.fails("bad argument #2 to 'counter:add': a string", counter.add, counter, 1, {})
  check.fails("bad argument #2 to 'counter:add': a label's value must be UTF-8", counter.add, counter, 1, "\255")
  check.fails("at most 128 bytes", counter.add, counter, 1, ("x"):rep(129))
  check.fails("a counter expected (call it with a colon)", counter.add, 1)
  local gauge, histogram = metrics.gauge("level", "help"), metrics.histogram("took", "help")
  check.fails("bad argument #1 to 'gauge:set': a finite number expected", gauge.set, gauge)
  check.fails("bad argument #1 to 'histogram:observe': a finite number expected", histogram.observe, histogram, 0 / 0)
  check.survives(2, function(...) return counter:add(...) end, 1, "x")
end

function t.series_are_few()
  local counter = metrics.counter("per_user", "help", { "user" })
  for i = 1, 1000 do counter:add(1, "user" .. i) end
  check.fails("the limit of 1000 series", counter.add, counter, 1, "one more")
  counter:add(1, "user1")
end

return t
