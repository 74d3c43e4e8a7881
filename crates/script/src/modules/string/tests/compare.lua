local native, ours = native, ours
local tostring, type, select, pcall, concat = tostring, type, select, pcall, table.concat

local function pack(...)
  local texts = {}
  for at = 1, select("#", ...) do
    local value = select(at, ...)
    texts[at] = type(value) .. ":" .. tostring(value)
  end
  return concat(texts, ", ")
end

local function find(s, p, init, _, _, with) return with.find(s, p, init) end
local function find_plain(s, p, init, _, _, with) return with.find(s, p, init, true) end
local function match(s, p, init, _, _, with) return with.match(s, p, init) end
local function gsub(s, p, _, replacement, count_max, with) return with.gsub(s, p, replacement, count_max) end
local function gmatch(s, p, _, _, _, with)
  local all = {}
  local next_match = with.gmatch(s, p)
  for _ = 1, 150 do
    local results = pack(next_match())
    all[#all + 1] = results
    if results == "" then break end
  end
  return concat(all, "; ")
end
local function gsub_function(s, p, _, _, count_max, with)
  local calls = {}
  local result, count = with.gsub(s, p, function(...)
    calls[#calls + 1] = pack(...)
    local first = ...
    if first == "a" then return nil elseif first == "b" then return false elseif first == 2 then return 7 end
    return "<" .. tostring(first) .. ">"
  end, count_max)
  return result, count, concat(calls, "; ")
end
local by_table = { a = "x", b = false, [1] = "one", [""] = "-" }
local function gsub_table(s, p, _, _, count_max, with) return with.gsub(s, p, by_table, count_max) end

local functions = {
  find = find, find_plain = find_plain, match = match, gsub = gsub, gmatch = gmatch,
  gsub_function = gsub_function, gsub_table = gsub_table,
}

return function(...)
  for name, run in pairs(functions) do
    local s, p, init, replacement, count_max = ...
    local our = pack(pcall(run, s, p, init, replacement, count_max, ours))
    if ours.find(our, "pattern too costly", 1, true) then return "costly" end
    local their = pack(pcall(run, s, p, init, replacement, count_max, native))
    if our ~= their then return name .. "\n  native " .. their .. "\n  ours   " .. our end
  end
end
