---@meta
-- `veche.dict` and `veche.counter`: values shared by all workers and all applications of the process. They survive a reload
-- of the code and end with the process. Every operation is atomic, and none waits.

---@class veche
local veche = {}

---Returns the dict of that name, and creates it if it does not exist. Errors: an invalid name; options that differ from
---those of the existing dict; a new dict while 1024 exist.
---@param name string 1 to 255 bytes.
---@param options? veche.dict_options Used when the dict is created; may be omitted later.
---@return veche.dict
function veche.dict(name, options) end

---Returns the counter of that name; a new counter starts at 0. Errors: an invalid name; a new counter while 65536 exist.
---@param name string 1 to 255 bytes.
---@return veche.counter
function veche.counter(name) end

---@class veche.dict_options
---@field bytes_max? integer Approximate memory limit for entries: keys, values and about 130 bytes each; at least 1024, 64 MiB
---by default. When it is reached, changes that need more memory raise errors; nothing is evicted. Expired entries are removed
---first, at most 32768 per change; a change that fails nevertheless can be repeated later.

---@alias veche.scalar string|number|boolean

---Keys are strings of up to 1024 bytes. Encode tables with `veche.json.encode`.
---@class veche.dict
local dict = {}

---@param key string
---@return veche.scalar? value Nil if the key has no value, or if the value has expired.
function dict:get(key) end

---Sets a value; nil deletes it. Error: the dict is full.
---@param key string
---@param value veche.scalar?
---@param ttl? number Lifetime in seconds, from 0.001 to 31536000; unlimited by default.
function dict:set(key, value, ttl) end

---Sets a value if the key has none. Error: the dict is full.
---@param key string
---@param value veche.scalar
---@param ttl? number Lifetime in seconds, from 0.001 to 31536000; unlimited by default.
---@return boolean added
function dict:add(key, value, ttl) end

---@param key string
---@return boolean deleted False if there was no value.
function dict:delete(key) end

---Adds to a number; its expiry does not change. Errors: the value is not a number; the sum is not finite, or is an integer
---beyond 2^53, where integers are not exact; the dict is full.
---@param key string
---@param by? number 1 by default.
---@param initial? number The value of a missing key before `by` is added; 0 by default.
---@return number sum
function dict:incr(key, by, initial) end

---Replaces a value with the result of a function. The function must not wait, and should have no side effects: if the key
---is changed meanwhile, it is called again with the new value.
---Errors: an error of the function, which leaves the value unchanged; a full dict; 1000 calls of the function without
---success.
---@param key string
---@param f fun(value: veche.scalar?): veche.scalar?, number? Returns the new value, nil to delete it; and its lifetime in
---seconds, without which its expiry does not change.
---@return veche.scalar? value The new value.
function dict:update(key, f) end

---Lists keys in byte order.
---@param prefix? string Only keys with this prefix; all by default.
---@param limit? integer Maximum number of keys, from 1 to 10000; 1000 by default.
---@return string[]
function dict:keys(prefix, limit) end

---Counts the keys with a value. Takes longer if many have just expired.
---@return integer
function dict:count() end

---@class veche.counter
local counter = {}

---Adds to the counter. Errors: an argument that is not an integer; a result beyond ±2^53, which leaves the counter
---unchanged.
---@param by? integer 1 by default.
---@return integer value The new value.
function counter:add(by) end

---@return integer value
function counter:get() end
