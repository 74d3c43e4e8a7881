---@meta
-- `veche.metrics`: what an application counts, on `/metrics` of the internal listener beside the server's own. All workers
-- and applications add to the same numbers. They outlive a reload and end with the process. Nothing here waits.

---A name has letters, digits and `_`, and begins with no digit. Names that begin with `veche_`, or end in `_count`, `_sum`,
---`_bucket`, `_created` or `_info`, are taken. Asked for twice it is the same metric, with the help that came first.
---Errors: such a name; help of over 1024 bytes, with control characters or a backslash; labels that are no list of at most 8 different names, or `le`, or begin
---with `__`; other labels, buckets or another kind than the metric of that name has; 512 metrics already.
---@class veche.metrics
local metrics = {}

---What only grows. A scrape says `name_total`, whether or not the name ends so.
---@param name string
---@param help string
---@param labels? string[]
---@return veche.metrics.counter
function metrics.counter(name, help, labels) end

---What goes up and down.
---@param name string
---@param help string
---@param labels? string[]
---@return veche.metrics.gauge
function metrics.gauge(name, help, labels) end

---How many values were at most so large.
---@param name string
---@param help string
---@param buckets? number[] Bounds that rise, at most 64; from 0.005 to 10 unless told, for seconds.
---@param labels? string[]
---@return veche.metrics.histogram
function metrics.histogram(name, help, buckets, labels) end

---Each call takes a value for each label, in their order. A metric has at most 1000 combinations of them: a label is for
---few values, not for users or addresses.
---Errors of all: not a finite number; other than one string of at most 128 bytes, number or boolean for each label; the
---1001st combination.
---@class veche.metrics.counter
local counter = {}

---@param by? number Not negative; 1 unless told.
---@param ... string|number|boolean Values of labels.
function counter:add(by, ...) end

---@class veche.metrics.gauge
local gauge = {}

---@param by? number 1 unless told.
---@param ... string|number|boolean Values of labels.
function gauge:add(by, ...) end

---@param value number
---@param ... string|number|boolean Values of labels.
function gauge:set(value, ...) end

---@class veche.metrics.histogram
local histogram = {}

---@param value number
---@param ... string|number|boolean Values of labels.
function histogram:observe(value, ...) end
