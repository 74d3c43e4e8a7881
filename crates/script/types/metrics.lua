---@meta
-- `veche.metrics`: an application's own metrics, exported on `/metrics` of the internal listener together with the server's.
-- All workers and applications share them. They survive a reload of the code and end with the process. No call waits.

---A name consists of letters, digits and `_`, and does not begin with a digit. Names that begin with `veche_`, or end in
---`_count`, `_sum`, `_bucket`, `_created` or `_info`, are reserved. A second call with the same name returns the same
---metric, with the first help text.
---Errors: an invalid or reserved name; a help text of more than 1024 bytes, or with control characters or a backslash;
---labels that are not a list of up to 8 different names, or include `le` or a name that begins with `__`; labels, buckets or
---a type that differ from the existing metric's; 512 metrics already.
---@class veche.metrics
local metrics = {}

---Returns a counter: a value that only grows. It is exported as `name_total`, whether or not the name ends with `_total`.
---@param name string
---@param help string
---@param labels? string[]
---@return veche.metrics.counter
function metrics.counter(name, help, labels) end

---Returns a gauge: a value that goes up and down.
---@param name string
---@param help string
---@param labels? string[]
---@return veche.metrics.gauge
function metrics.gauge(name, help, labels) end

---Returns a histogram, which counts values by buckets with upper bounds.
---@param name string
---@param help string
---@param buckets? number[] Upper bounds in ascending order, up to 64; by default from 0.005 to 10, for seconds.
---@param labels? string[]
---@return veche.metrics.histogram
function metrics.histogram(name, help, buckets, labels) end

---Each call takes a value for each label, in the order of the labels. A metric has up to 1000 combinations of label values:
---labels are for a few values, not for users or addresses.
---Errors of all calls: not a finite number; not exactly one string of up to 128 bytes, number or boolean per label; the
---1001st combination.
---@class veche.metrics.counter
local counter = {}

---@param by? number Not negative; 1 by default.
---@param ... string|number|boolean Label values.
function counter:add(by, ...) end

---@class veche.metrics.gauge
local gauge = {}

---@param by? number 1 by default.
---@param ... string|number|boolean Label values.
function gauge:add(by, ...) end

---@param value number
---@param ... string|number|boolean Label values.
function gauge:set(value, ...) end

---@class veche.metrics.histogram
local histogram = {}

---@param value number
---@param ... string|number|boolean Label values.
function histogram:observe(value, ...) end
