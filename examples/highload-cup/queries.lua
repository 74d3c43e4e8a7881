-- The two questions that take more than one row: where a user has been, and what a place is worth. Both take the
-- decoded query, and return the text of a JSON object, or nil if the query is wrong.

local veche = require "veche"
local tables = require "tables".tables
local born = require "born"

local users, locations, visits = tables.users, tables.locations, tables.visits
local encode, array, floor = veche.json.encode, veche.json.array, math.floor

-- A whole number; nil if there is none, false if there is something else.
local function whole(text)
  if text == nil then return nil end
  return text:find("^-?%d+$") and tonumber(text) or false
end

local COLUMNS = { "location", "visited_at", "mark" }

local function visits_of(user, query)
  local from, to, distance = whole(query.fromDate), whole(query.toDate), whole(query.toDistance)
  if from == false or to == false or distance == false then return nil end
  local country = query.country
  local found, n = array(), 0
  for visit in visits:scan("by_user", user, { above = from, below = to, columns = COLUMNS }) do
    local location = visit.location
    if (country == nil or locations:get(location, "country") == country)
      and (distance == nil or locations:get(location, "distance") < distance) then
      n = n + 1
      found[n] = visit
      visit.location, visit.place = nil, locations:get(location, "place")
    end
  end
  return encode { visits = found }
end

-- Sum and number of marks whose users are of that gender, and born before or after.
local function marks_of(location, dates, gender, before, after)
  local sum, count = 0, 0
  for visit in visits:scan("by_location", location, dates) do
    local user = visit.user
    if (gender == nil or users:get(user, "gender") == gender)
      and (before == nil or users:get(user, "birth_date") < before)
      and (after == nil or users:get(user, "birth_date") > after) then
      sum, count = sum + visit.mark, count + 1
    end
  end
  return sum, count
end

local OF_USERS = { "user", "mark" }

local function average_of(location, query)
  local from, to = whole(query.fromDate), whole(query.toDate)
  local older, younger, gender = whole(query.fromAge), whole(query.toAge), query.gender
  if from == false or to == false or older == false or younger == false then return nil end
  if gender ~= nil and gender ~= "m" and gender ~= "f" then return nil end
  local sum, count
  if older or younger or gender then
    local dates = { above = from, below = to, columns = OF_USERS }
    sum, count = marks_of(location, dates, gender, older and born.before(older), younger and born.before(younger))
  else
    local marks = visits:aggregate("mark", "by_location", location, { above = from, below = to })
    sum, count = marks.sum, marks.count
  end
  if count == 0 then return '{"avg":0.0}' end
  -- Half up, in whole numbers: 0.000005 has no exact form in binary, 5 has.
  return '{"avg":' .. floor((200000 * sum + count) / (2 * count)) / 100000 .. '}'
end

return { visits_of = visits_of, average_of = average_of }
