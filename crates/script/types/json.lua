---@meta
-- `veche.json`: tables to JSON and back.

---@class veche.json
---@field null lightuserdata JSON's null, which a table can hold.
local json = {}

---A table with the keys 1 to n is an array, any other an object; an empty one is an object unless it is of `array`.
---Errors: functions, coroutines, NaN and infinity, strings that are not UTF-8, keys of both kinds, tables in themselves
---or deeper than 128. Whole numbers below 10^21 are written in digits alone, keys of objects in the order of their bytes.
---@param value any
---@return string
function json.encode(value) end

---Whole numbers beyond ±2^53 are strings of their digits. Errors: no JSON, with line and column; deeper than 128.
---@param text string
---@return any
function json.decode(text) end

---Marks a table as an array, so that it is one even when it is empty.
---@param table? table A new one unless given.
---@return table
function json.array(table) end
