-- `veche.metrics`: Lua objects for metrics, each of which Rust stores under a number.
local inner = ...
local native, class = inner.native.metrics, inner.class

local new_counter = class("counter", { add = native["counter:add"] })
local new_gauge = class("gauge", { add = native["gauge:add"], set = native["gauge:set"] })
local new_histogram = class("histogram", { observe = native["histogram:observe"] })

return {
  metrics = {
    counter = function(...) return new_counter(native.counter(...)) end,
    gauge = function(...) return new_gauge(native.gauge(...)) end,
    histogram = function(...) return new_histogram(native.histogram(...)) end,
  },
}
