---@meta
-- `veche.time`: clocks, and dates in UTC. Seconds are numbers, fractions count. Clocks stand still while a handler runs:
-- they show when its turn began, in milliseconds.

---@class veche.time
local time = {}

---@return number seconds Since 1970, by the wall clock, which may be set back.
function time.now() end

---@return number seconds Since some start; never goes back. For differences.
function time.monotonic() end

---A date as HTTP's headers have it. Error: out of range.
---@param seconds? number Since 1970, from 0 to 253402300799; now unless told.
---@return string date "Sun, 06 Nov 1994 08:49:37 GMT"
function time.http(seconds) end

---Reads a date in one of HTTP's three forms.
---@param text string
---@return integer? seconds Since 1970; nil if it is no date, or an earlier one.
---@return string? why
function time.parse_http(text) end

---A date as ISO 8601 and RFC 3339 have it. Error: out of range.
---@param seconds? number Since 1970, from -62167219200 to 253402207200; now unless told.
---@param digits? integer Of the fraction, from 0 to 6; 3 unless told. What is beyond is cut off.
---@return string date "2023-11-14T22:13:20.125Z"
function time.iso(seconds, digits) end

---Reads such a date; it has to have a time and an offset from UTC, or "Z".
---@param text string
---@return number? seconds Since 1970, to microseconds; nil if it is no date.
---@return string? why
function time.parse_iso(text) end
