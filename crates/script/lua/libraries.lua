-- Replacements for library functions that may take long or return large results. They check for memory first, or work in parts.
--
-- The watchdog can end a run only between two Lua instructions, not within a C function. So long operations are split into
-- parts here. Short ones call the library function by a tail call, so that errors name the script's line. Functions with string
-- patterns are in modules/string.
local native = ...

local room, has_room, bytes_of, sort_kind, is_c = native.room, native.has_room, native.bytes_of, native.sort_kind, native.is_c
local error, next, type, rawget, rawset, select, ceil = error, next, type, rawget, rawset, select, math.ceil
local to_number, date = tonumber, os.date
local concat, sort, insert, maxn = table.concat, table.sort, table.insert, table.maxn
local find, sub = string.find, string.sub

-- The maximum number of bytes that a C function handles in one call. Memory for a result of this length is never refused
-- (raw/memory.rs, `LARGE_BYTES`).
local PART_BYTES = 512 * 1024
-- The number of list items that are concatenated or moved in one step.
local PIECES = 16384
-- Up to this many items are concatenated in one step, regardless of their length; only memory
-- limits the length.
local PIECES_FEW = 64

local NO_MEMORY = "not enough memory: the application is over its limit"

-- Concatenates the items from `i` to `j`, at most `PIECES`. `level` determines the function that
-- an error names, as in `error`: 1 is the function that calls this one.
local function join(list, separator, i, j, level)
  local bytes = bytes_of(list, #separator, i, j)
  -- The result is in memory twice: in a growing list, and as a string.
  if bytes and not has_room(2 * bytes) then error(NO_MEMORY, level + 1) end
  return concat(list, separator, i, j)
end

local function join_many(list, separator, i, j, level)
  local parts, count = {}, 0
  for from = i, j, PIECES do
    count = count + 1
    local to = from + PIECES - 1
    parts[count] = join(list, separator, from, to < j and to or j, level + 1)
  end
  return join(parts, separator, 1, count, level + 1)
end

-- Builds a text from parts that `part(from, to)` returns. If `is_backwards` is set, the last part comes first.
local function in_parts(length, part, is_backwards)
  local parts, count = {}, 0
  local places = ceil(length / PART_BYTES)
  for from = 1, length, PART_BYTES do
    count = count + 1
    parts[is_backwards and places + 1 - count or count] = part(from, from + PART_BYTES - 1)
  end
  return join(parts, "", 1, count, 3)
end

---------------------------------------------------------------------------------------------------- string

local function is_long(s) return type(s) == "string" and #s > PART_BYTES end

-- LuaJIT implements this function in assembler code, which can't handle a failed allocation.
function string.sub(s, i, j)
  if is_long(s) and not has_room(#s) then error(NO_MEMORY, 2) end
  return sub(s, i, j)
end

for _, name in ipairs { "lower", "upper" } do
  local convert = string[name]
  string[name] = function(...)
    local s = ...
    if not is_long(s) then return convert(...) end
    return in_parts(#s, function(from, to) return convert(sub(s, from, to)) end)
  end
end

local reverse = string.reverse
function string.reverse(...)
  local s = ...
  if not is_long(s) then return reverse(...) end
  return in_parts(#s, function(from, to) return reverse(sub(s, from, to)) end, true)
end

-- A cache of short formats without %q. It is cleared when it is full. Formats with %q are not stored, because %q visits
-- each byte of its argument.
local format, plain_formats, plain_formats_count = string.format, {}, 0
local PLAIN_FORMATS_MAX, PLAIN_FORMAT_BYTES_MAX = 512, 256

local function format_watched(...)
  local text = ...
  if is_long(text) then error("bad argument #1 to 'format': the format is longer than 512 KiB", 2) end
  if type(text) ~= "string" then return format(...) end
  if find(text, "%%[^%a%%]*q") then
    for at = 2, select("#", ...) do
      if is_long((select(at, ...))) then
        error("bad argument #" .. at .. " to 'format': a text for %q is longer than 512 KiB", 2)
      end
    end
  elseif #text <= PLAIN_FORMAT_BYTES_MAX then
    if plain_formats_count == PLAIN_FORMATS_MAX then plain_formats, plain_formats_count = {}, 0 end
    plain_formats[text], plain_formats_count = true, plain_formats_count + 1
  end
  return format(...)
end

function string.format(...)
  if plain_formats[...] then return format(...) end
  return format_watched(...)
end

-- With a function as the replacement, a Lua function is called from C, so the depth of the C stack is checked first.
local gsub = string.gsub
function string.gsub(...)
  room()
  return gsub(...)
end

---------------------------------------------------------------------------------------------------- table

function table.concat(...)
  local list, separator, i, j = ...
  if type(list) ~= "table" then return concat(...) end
  local first, last = i == nil and 1 or to_number(i), j == nil and #list or to_number(j)
  if not first or not last or last - first < PIECES_FEW then return concat(...) end
  if separator == nil then separator = "" end
  if type(separator) == "number" then separator = separator .. "" end
  if type(separator) ~= "string" then return concat(...) end
  if last - first < PIECES then return join(list, separator, first, last, 2) end
  return join_many(list, separator, first, last, 2)
end

local function less(a, b) return a < b end

-- Sorts numbers or strings by merge sort. Its loops are compiled and always take n log n steps. `table.sort` of LuaJIT
-- compares all pairs in the worst case and can't be interrupted.
local function merge_sort(list, count)
  local from, to = {}, {}
  for at = 1, count do from[at] = rawget(list, at) end
  local width = 1
  while width < count do
    for low = 1, count, 2 * width do
      local one, other = low, low + width
      local one_end, other_end = other, other + width
      if one_end > count + 1 then one_end = count + 1 end
      if other_end > count + 1 then other_end = count + 1 end
      for at = low, other_end - 1 do
        if one < one_end and (other >= other_end or not (from[other] < from[one])) then
          to[at], one = from[one], one + 1
        else
          to[at], other = from[other], other + 1
        end
      end
    end
    from, to, width = to, from, 2 * width
  end
  for at = 1, count do rawset(list, at, from[at]) end
end

function table.sort(list, compare)
  room()
  if type(list) ~= "table" then return sort(list, compare) end
  if compare ~= nil then
    -- A C function is wrapped in a Lua function, so that the watchdog can end the run at each comparison.
    if is_c(compare) then
      local own = compare
      compare = function(a, b) return own(a, b) end
    end
    return sort(list, compare)
  end
  local is_quick, is_plain = sort_kind(list)
  if is_quick then return sort(list) end
  if is_plain then return merge_sort(list, #list) end
  return sort(list, less)
end

function table.maxn(list)
  if type(list) ~= "table" then return maxn(list) end
  local most = 0
  for key in next, list do
    if type(key) == "number" and key > most then most = key end
  end
  return most
end

function table.insert(list, position, ...)
  if select("#", ...) == 0 then return insert(list, position) end
  if select("#", ...) == 1 and type(list) == "table" and type(position) == "number" and position % 1 == 0 then
    local count = #list
    if count - position > PIECES then
      for at = count, position, -1 do rawset(list, at + 1, rawget(list, at)) end
      rawset(list, position, (...))
      return
    end
  end
  return insert(list, position, ...)
end

---------------------------------------------------------------------------------------------------- others

-- A text that is too long can't be a number, so it is not passed to Lua's own `tonumber`.
function tonumber(...)
  if is_long((...)) then return nil end
  return to_number(...)
end

local DATE_BYTES_MAX = 1024
function os.date(...)
  local text = ...
  if type(text) == "string" and #text > DATE_BYTES_MAX then
    error("bad argument #1 to 'date': a format of at most 1024 bytes expected", 2)
  end
  return date(...)
end
