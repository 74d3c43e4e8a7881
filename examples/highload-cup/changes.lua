-- Handles POST: inserts a row, or updates an existing one. The tables' columns enforce most rules:
-- they reject a row if a field is missing, unknown, null, too long, of another type, or not unique
-- where it has to be. A rejected row changes nothing.

local veche = require "veche"
local tables = require "tables".tables

local MARK_MAX = 5

local NUMBERS = {
  users = { "id", "birth_date" }, locations = { "id", "distance" }, visits = { "id", "location", "user", "visited_at", "mark" },
}

-- Checks the rules that columns don't enforce. Columns accept a number as a string of digits, which
-- is an error here.
local function is_sound(kind, row)
  for _, name in ipairs(NUMBERS[kind]) do
    if row[name] ~= nil and type(row[name]) ~= "number" then return false end
  end
  if kind ~= "visits" then return true end
  return (row.mark == nil or row.mark <= MARK_MAX)
    and (row.user == nil or tables.users:has(row.user))
    and (row.location == nil or tables.locations:has(row.location))
end

local function insert(kind, row)
  if not is_sound(kind, row) then return false end
  tables[kind]:insert(row)
  return true
end

local function update(kind, row, id)
  if row.id ~= nil or not is_sound(kind, row) then return false end
  return tables[kind]:update(id, row)
end

-- Executes a request: updates the row `id`, or inserts a row if `id` is nil. Returns the status.
local function change(kind, req, id)
  local row = req.json
  if type(row) ~= "table" or not req.body:find("^%s*{") then return 400 end
  local done, result = pcall(id and update or insert, kind, row, id)
  if done then return result and 200 or 400 end
  veche.log.debug(result)
  return 400
end

return change
