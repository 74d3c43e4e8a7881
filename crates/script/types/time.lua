---@meta
-- `veche.time`: clocks, and dates in UTC. Times are in seconds and may have fractions. Clocks do not advance while a handler
-- runs: they show the time at which its turn began, to the millisecond.

---@class veche.time
local time = {}

---@return number seconds Since 1970, by the wall clock, which may be set back.
function time.now() end

---@return number seconds Since an arbitrary start; never goes back. For measuring durations.
function time.monotonic() end

---Formats a date as in HTTP headers. Raises an error if `seconds` is out of range.
---@param seconds? number Since 1970, from 0 to 253402300799; now by default.
---@return string date "Sun, 06 Nov 1994 08:49:37 GMT"
function time.http(seconds) end

---Parses a date in one of HTTP's three formats.
---@param text string
---@return integer? seconds Since 1970; nil if it is not a date, or is before 1970.
---@return string? why
function time.parse_http(text) end

---Formats a date according to ISO 8601 and RFC 3339. Raises an error if an argument is out of range.
---@param seconds? number Since 1970, from -62167219200 to 253402207200; now by default.
---@param digits? integer Digits of the fraction, from 0 to 6; 3 by default. Further digits are truncated.
---@return string date "2023-11-14T22:13:20.125Z"
function time.iso(seconds, digits) end

---Parses a date in the format of ISO 8601 and RFC 3339; it must have a time, and an offset from UTC or "Z".
---@param text string
---@return number? seconds Since 1970, to the microsecond; nil if it is not a date.
---@return string? why
function time.parse_iso(text) end
