-- Functions of Lua's libraries whose cost or result may exceed a slice: asked for room before they begin, or cut in slices.
--
-- The watchdog ends a run between two instructions of Lua, never within a function of C. So long operations are done
-- here in parts. Short ones go to the library at once, by a tail call, so that errors name the script's line. Functions
-- of strings with patterns are in modules/string.
local native = ...

local room, has_room, bytes_of, sorts_quickly = native.room, native.has_room, native.bytes_of, native.sorts_quickly
local error, type, rawget, rawset, select, tonumber, ceil = error, type, rawget, rawset, select, tonumber, math.ceil
local concat, sort, insert = table.concat, table.sort, table.insert
local sub = string.sub

-- Bytes that a function of C handles at once. A result of that length is never refused (`LARGE_BYTES` of raw/memory.rs).
local PART_BYTES = 512 * 1024
-- Pieces of a list that are put together, or moved, at once.
local PIECES = 16384
-- So few are put together at once whatever their length: memory bounds it.
local PIECES_FEW = 64

local NO_MEMORY = "not enough memory: the application is over its limit"

-- The pieces from `i` to `j`, at most `PIECES`. `level` as of `error`.
local function join(list, separator, i, j, level)
  local bytes = bytes_of(list, #separator, i, j)
  -- As it grows, and as a string.
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

-- A text of parts that `part(from, to)` makes; `is_backwards`: the last comes first.
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

-- LuaJIT has these in assembler, where a refusal of memory must not reach them.
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

-- A replacement that is a function is called from C.
local gsub = string.gsub
function string.gsub(...)
  room()
  return gsub(...)
end

---------------------------------------------------------------------------------------------------- table

function table.concat(...)
  local list, separator, i, j = ...
  if type(list) ~= "table" then return concat(...) end
  local first, last = i == nil and 1 or tonumber(i), j == nil and #list or tonumber(j)
  if not first or not last or last - first < PIECES_FEW then return concat(...) end
  if separator == nil then separator = "" end
  if type(separator) == "number" then separator = separator .. "" end
  if type(separator) ~= "string" then return concat(...) end
  if last - first < PIECES then return join(list, separator, first, last, 2) end
  return join_many(list, separator, first, last, 2)
end

-- Sorted in C where that is quick; with a function to compare by, C comes back for each pair.
local function less(a, b) return a < b end

function table.sort(list, compare)
  room()
  if compare == nil and type(list) == "table" and not sorts_quickly(list) then compare = less end
  return sort(list, compare)
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
