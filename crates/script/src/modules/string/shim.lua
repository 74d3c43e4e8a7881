-- `string.find`, `match`, `gmatch`, `gsub` and `rep` with a bounded cost.
--
-- LuaJIT's own functions are called if the pattern can't be costly on a subject of this length, and
-- to raise the errors for invalid arguments. In all other cases the matcher in Rust is used, which
-- counts its steps and returns positions. Functions here end in tail calls, so that errors have the
-- script's position instead of one in this file. They read no globals when they run, because
-- scripts can change globals.
local measure, search, collect, substitute, whole, string_bytes_max = ...

local find_native, match_native = string.find, string.match
local gmatch_native, gsub_native, rep_native = string.gmatch, string.gsub, string.rep
local byte, sub, concat = string.byte, string.sub, table.concat
local math_floor, math_ceil = math.floor, math.ceil
local error, next, select, tonumber, type = error, next, select, tonumber, type

-- The maximum number of patterns whose bounds are cached; when it is exceeded, the cache is cleared.
local PATTERNS_MAX = 512
local PATTERN_BYTES_MAX = 256
-- Longer replacement strings are always expanded in Rust, where the length of the result is
-- limited.
local REPLACEMENT_BYTES_MAX = 256
-- The maximum number of bytes that `rep` creates by one call of LuaJIT's function.
local REPEATED_BYTES = 256 * 1024
-- The maximum number of matches fetched at once. The first fetch is for one match only, because
-- many scripts stop after the first match.
local BATCH_MATCHES_MAX = 64
local CARET = byte("^")

-- `bounds` maps a pattern to the maximum length of a subject on which LuaJIT's functions can't be costly, or to -1 if
-- they can be costly on any subject. `find_bounds` has the bounds for `find`, which are larger for a pattern without
-- special characters, because `find` then searches for plain text.
local bounds, find_bounds, bounds_count = {}, {}, 0

local function learn(p)
  if #p > PATTERN_BYTES_MAX then return -1 end
  if bounds_count == PATTERNS_MAX then
    for known in next, bounds do bounds[known], find_bounds[known] = nil, nil end
    bounds_count = 0
  end
  bounds[p], find_bounds[p] = measure(p)
  bounds_count = bounds_count + 1
  return bounds[p]
end

local function learn_find(p)
  learn(p)
  return find_bounds[p] or -1
end

local function is_text(value)
  local kind = type(value)
  return kind == "string" or kind == "number"
end

-- Converts a number to text. Returns a string unchanged, because `..` would copy it.
local function as_text(value)
  if type(value) == "number" then return value .. "" end
  return value
end

local function is_count(value)
  return value == nil or is_text(value) and tonumber(value) ~= nil
end

-- Returns a capture. Positions come in pairs: the first and the last byte, or a position capture and -1.
local function capture(s, from, to)
  if to < 0 then return from end
  return sub(s, from, to)
end

-- Returns the captures in `positions` from index `at` to `last`.
local function captures(s, positions, at, last)
  local value = capture(s, positions[at], positions[at + 1])
  if at + 2 > last then return value end
  return value, captures(s, positions, at + 2, last)
end

-- Returns the captures of a match, or the whole match if it has none. `width` is the number of
-- positions of the match and its captures.
local function matched(s, positions, at, width)
  if width == 2 then return sub(s, positions[at], positions[at + 1]) end
  local first = capture(s, positions[at + 2], positions[at + 3])
  if width == 4 then return first end
  if width == 6 then return first, capture(s, positions[at + 4], positions[at + 5]) end
  return first, captures(s, positions, at + 4, at + width - 1)
end

local function found(s, failure, from, to, ...)
  if failure then error(failure, 2) end
  if not from then return nil end
  if not ... then return from, to end
  return from, to, captures(s, { ... }, 1, select("#", ...))
end

local function found_match(s, failure, ...)
  if failure then error(failure, 2) end
  if not ... then return nil end
  return matched(s, { ... }, 1, select("#", ...))
end

local function replaced(failure, result, count)
  -- As in LuaJIT, the error for missing memory has no position in the script.
  if failure == "not enough memory" then error(failure, 0) end
  if failure then error(failure, 2) end
  return result, count
end

-- Returns the position that the argument `init` denotes.
local function start_of(s, init)
  if init == nil then return 1 end
  return (find_native(s, "", init))
end

local function find_counted(...)
  local s, p, init, plain = ...
  if not (is_text(s) and is_text(p) and is_count(init)) then return find_native(...) end
  s, p = as_text(s), as_text(p)
  if #s <= (find_bounds[p] or learn_find(p)) then return find_native(s, p, init, plain) end
  return found(s, search(s, p, start_of(s, init), true, not not plain))
end

local function find(...)
  local s, p = ...
  local bound = find_bounds[p]
  if bound and type(s) == "string" and #s <= bound then return find_native(...) end
  return find_counted(...)
end

local function match_counted(...)
  local s, p, init = ...
  if not (is_text(s) and is_text(p) and is_count(init)) then return match_native(...) end
  s, p = as_text(s), as_text(p)
  if #s <= (bounds[p] or learn(p)) then return match_native(s, p, init) end
  return found_match(s, search(s, p, start_of(s, init), false, false))
end

local function match(...)
  local s, p = ...
  local bound = bounds[p]
  if bound and type(s) == "string" and #s <= bound then return match_native(...) end
  return match_counted(...)
end

-- The purposes of `collect`, and the fields of its results: a failure that occurs after the matches, or false; the position at
-- which the next match may begin, or -1; the number of positions per match; and the positions of the matches.
local COLLECT_ALL, COLLECT_REPLACED, COLLECT_LOOKED_UP = 0, 1, 2
local FAILURE, POSITION, WIDTH, HEAD = 1, 2, 3, 3

local function gmatch_counted(s, p)
  local batch, at = { false, 0, 2 }, HEAD + 1
  local room = 1
  return function()
    if batch[at] == nil then
      local failure, position = batch[FAILURE], batch[POSITION]
      if not failure and position >= 0 then
        batch, at = { collect(s, p, position, room, COLLECT_ALL) }, HEAD + 1
        room = room < BATCH_MATCHES_MAX and room * 4 or room
        failure = batch[FAILURE]
      end
      if batch[at] == nil then
        if failure then error(failure, 2) end
        return
      end
    end
    local here = at
    at = here + batch[WIDTH]
    return matched(s, batch, here, batch[WIDTH])
  end
end

local function gmatch(...)
  local s, p = ...
  if not (is_text(s) and is_text(p)) then return gmatch_native(...) end
  s, p = as_text(s), as_text(p)
  -- The bounds assume that `^` is an anchor, but in `gmatch` it is a plain character.
  if #s <= (bounds[p] or learn(p)) and byte(p) ~= CARET then return gmatch_native(s, p) end
  return gmatch_counted(s, p)
end

-- Implements `gsub` with a table or a function as the replacement. Returns a failure or false, the result, and the count.
local function gsub_asking(s, p, replacement, count_max)
  local pieces, pieces_count, bytes = {}, 0, 0
  local copied, count, failure = 1, 0, false

  local function add(piece)
    pieces_count = pieces_count + 1
    pieces[pieces_count] = piece
    bytes = bytes + #piece
  end

  local function replace_all()
    local is_function = type(replacement) == "function"
    local kind = is_function and COLLECT_REPLACED or COLLECT_LOOKED_UP
    local position, room = 0, 1
    while position >= 0 and count < count_max do
      local left = count_max - count
      local batch = { collect(s, p, position, room < left and room or left, kind) }
      local width = batch[WIDTH]
      for at = HEAD + 1, #batch, width do
        local from, to = batch[at], batch[at + 1]
        local value
        if is_function then
          value = replacement(matched(s, batch, at, width))
        else
          value = replacement[matched(s, batch, at, width)]
        end
        if not value then
          value = sub(s, from, to)
        elseif not is_text(value) then
          failure = "invalid replacement value (a " .. type(value) .. ")"
          return
        end
        add(sub(s, copied, from - 1))
        add(as_text(value))
        if bytes > string_bytes_max then return end
        copied, count = to + 1, count + 1
      end
      failure, position = batch[FAILURE], batch[POSITION]
      if failure then return end
      room = room < BATCH_MATCHES_MAX and room * 4 or room
    end
    add(sub(s, copied))
  end

  -- Callbacks of LuaJIT's own `gsub` can't yield. Here they can't either, because `replace_all` is called by
  -- `gsub_native`, a C function.
  gsub_native("", "", replace_all)
  if failure then return failure end
  if count == 0 then return false, s, 0 end
  if bytes > string_bytes_max then
    return "resulting string too large: more than " .. string_bytes_max .. " bytes"
  end
  return false, concat(pieces), count
end

local function gsub_counted(...)
  local s, p, replacement, count_max = ...
  local kind = type(replacement)
  local asks = kind == "function" or kind == "table"
  if not (is_text(s) and is_text(p) and is_count(count_max) and (asks or is_text(replacement))) then
    return gsub_native(...)
  end
  s, p = as_text(s), as_text(p)
  if #s <= (bounds[p] or learn(p)) and (asks or #as_text(replacement) <= REPLACEMENT_BYTES_MAX) then
    return gsub_native(s, p, replacement, count_max)
  end
  count_max = count_max == nil and #s + 1 or whole(tonumber(count_max))
  if asks then return replaced(gsub_asking(s, p, replacement, count_max)) end
  return replaced(substitute(s, p, as_text(replacement), count_max))
end

local function gsub(...)
  local s, p, replacement = ...
  local bound = bounds[p]
  if bound and type(s) == "string" and #s <= bound
    and (type(replacement) ~= "string" or #replacement <= REPLACEMENT_BYTES_MAX) then
    return gsub_native(...)
  end
  return gsub_counted(...)
end

-- A long result is built from parts longer than `s`, which are copied faster.
local function rep_in_parts(s, n, separator, each)
  local part, parts = s .. separator, {}
  local count = math_floor((n - 1) / each)
  if each > 1 then part = rep_native(part, each) end
  for at = 1, count do parts[at] = part end
  parts[count + 1] = rep_native(s, n - count * each, separator)
  return concat(parts)
end

local function rep(...)
  local s, n, separator = ...
  local count = is_text(s) and is_text(n) and tonumber(n)
  if not count or separator ~= nil and not is_text(separator) then return rep_native(...) end
  s, separator = as_text(s), as_text(separator or "")
  local each = #s + #separator
  if each == 0 then return "" end
  local bytes = each * count
  if bytes > string_bytes_max then
    error("resulting string too large: more than " .. string_bytes_max .. " bytes", 2)
  end
  if bytes <= REPEATED_BYTES then return rep_native(...) end
  return rep_in_parts(s, math_floor(count), separator, math_ceil(REPEATED_BYTES / 4 / each))
end

string.find, string.match, string.gmatch, string.gsub, string.rep = find, match, gmatch, gsub, rep
if string.gfind then string.gfind = gmatch end
