---@meta
-- `veche.json`: encodes and decodes JSON.

---@class veche.json
---@field null lightuserdata JSON's null, as a value that can be stored in a table.
local json = {}

---Encodes a value. A table with the keys 1 to n is an array, any other table an object; an empty table is an object unless
---it was made by `array`. Integers below 10^21 are written without an exponent, keys of objects in byte order.
---Errors: functions, coroutines, NaN and infinity, strings that are not UTF-8, tables that mix both kinds of keys, contain
---themselves, or are nested more than 128 levels deep.
---@param value any
---@return string
function json.encode(value) end

---Decodes a text. Integers beyond ±2^53 become strings of digits. Errors: invalid JSON, with line and column; nested more
---than 128 levels deep.
---@param text string
---@return any
function json.decode(text) end

---Marks a table as an array, so that it is encoded as one even if it is empty.
---@param table? table A new table by default.
---@return table
function json.array(table) end
