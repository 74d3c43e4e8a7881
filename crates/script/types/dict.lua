---@meta
-- `veche.dict` and `veche.counter`: what all workers and all applications of the process share. It outlives a reload of
-- the code and ends with the process. Every operation is atomic, and none waits.

---@class veche
local veche = {}

---The dict of that name, which comes to be when it is first asked for. Errors: a bad name; other options than it has;
---1024 dicts already.
---@param name string 1 to 255 bytes.
---@param options? veche.dict_options Count when it comes to be; later they may be left out.
---@return veche.dict
function veche.dict(name, options) end

---The counter of that name, which begins with 0. Errors: a bad name; 65536 counters already.
---@param name string 1 to 255 bytes.
---@return veche.counter
function veche.counter(name) end

---@class veche.dict_options
---@field bytes_max? integer About the memory that entries may take: keys, values and some 130 bytes each; at least 1024,
---64 MiB unless told. When it is reached, changes that need more are errors; nothing is thrown out.

---@alias veche.scalar string|number|boolean

---Keys are strings of at most 1024 bytes. Tables go through `veche.json.encode`.
---@class veche.dict
local dict = {}

---@param key string
---@return veche.scalar? value Nil if there is none, or it has expired.
function dict:get(key) end

---Sets a value, or takes it out if it is nil. Error: the dict is full.
---@param key string
---@param value veche.scalar?
---@param ttl? number Seconds that it stays, from 0.001 to 31536000; for good unless told.
function dict:set(key, value, ttl) end

---Sets a value if there is none. Error: the dict is full.
---@param key string
---@param value veche.scalar
---@param ttl? number Seconds that it stays, from 0.001 to 31536000; for good unless told.
---@return boolean added
function dict:add(key, value, ttl) end

---@param key string
---@return boolean deleted False if there was none.
function dict:delete(key) end

---Adds to a number; when it expires stays as it was. Errors: the value is no number; the sum is not finite, or of whole numbers
---and beyond 2^53, where not all of them are exact; the dict is full.
---@param key string
---@param by? number 1 unless told.
---@param initial? number What a key without a value begins with, before `by` is added; 0 unless told.
---@return number sum
function dict:incr(key, by, initial) end

---Replaces a value by what a function makes of it. The function must not wait, and should do nothing else: if somebody
---changes the key meanwhile, it is called again with the new value.
---Errors: those of the function, and then nothing is changed; the dict is full; after 1000 calls in vain.
---@param key string
---@param f fun(value: veche.scalar?): veche.scalar?, number? Gives the new value, nil to take it out; and seconds that it
---stays, otherwise it expires when it would have before.
---@return veche.scalar? value The new one.
function dict:update(key, f) end

---Keys in the order of their bytes.
---@param prefix? string Their beginning; all unless given.
---@param limit? integer At most so many, from 1 to 10000; 1000 unless told.
---@return string[]
function dict:keys(prefix, limit) end

---How many keys have a value. Takes longer with many that have just expired.
---@return integer
function dict:count() end

---@class veche.counter
local counter = {}

---Errors: not a whole number; the counter would be beyond ±2^53, then it stays as it is.
---@param by? integer 1 unless told.
---@return integer value The new one.
function counter:add(by) end

---@return integer value
function counter:get() end
