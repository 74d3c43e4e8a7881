-- The two queries that read more than one row: the visits of a user, and the average mark of a
-- place. Both functions take the decoded query, and return the text of a JSON object, or nil if the
-- query is invalid.
--
-- These queries are frequent, so no table is created for a row: `values` returns columns as values,
-- and the pieces of the response are joined only once.

local veche = require "veche"
local tables = require "tables".tables
local born = require "born"

local users, locations, visits = tables.users, tables.locations, tables.visits
local encode, floor, concat = veche.json.encode, math.floor, table.concat

-- Returns a whole number; nil if `text` is nil, false if it is invalid.
local function whole(text)
  if text == nil then return nil end
  return text:find("^-?%d+$") and tonumber(text) or false
end

-- Returns a string as JSON. Names of places are frequent, so up to QUOTED_MAX results are cached.
local quoted, quoted_count, QUOTED_MAX = {}, 0, 10000

local function quote(text)
  local json = quoted[text]
  if not json then
    json = encode(text)
    if quoted_count == QUOTED_MAX then quoted, quoted_count = {}, 0 end
    quoted[text], quoted_count = json, quoted_count + 1
  end
  return json
end

local USER_COLUMNS = { "id", "location", "mark", "visited_at" }

local function visits_of(user, query)
  local from, to, distance = whole(query.fromDate), whole(query.toDate), whole(query.toDistance)
  if from == false or to == false or distance == false then return nil end
  local country, n = query.country, 0
  -- Other requests may run between two rows, so each request has its own list of pieces.
  local pieces, of_user = {}, { columns = USER_COLUMNS, above = from, below = to }
  for _, location, mark, visited_at in visits:values("by_user", user, of_user) do
    local place, of_country, far
    if country or distance then
      place, of_country, far = locations:get(location, "place", "country", "distance")
    else
      place = locations:get(location, "place")
    end
    if (not country or of_country == country) and (not distance or far < distance) then
      pieces[n + 1] = n == 0 and '{"visits":[{"mark":' or '},{"mark":'
      pieces[n + 2] = mark
      pieces[n + 3] = ',"visited_at":'
      pieces[n + 4] = visited_at
      pieces[n + 5] = ',"place":'
      pieces[n + 6] = quote(place)
      n = n + 6
    end
  end
  if n == 0 then return '{"visits":[]}' end
  pieces[n + 1] = "}]}"
  return concat(pieces, "", 1, n + 1)
end

local PLACE_COLUMNS = { "id", "user", "mark" }

-- Returns the sum and the number of the marks by users of a gender who were born before or after
-- the given times.
local function marks_of(location, of_place, gender, before, after)
  local sum, count = 0, 0
  for _, user, mark in visits:values("by_location", location, of_place) do
    local of_gender, birth_date = users:get(user, "gender", "birth_date")
    if (not gender or of_gender == gender) and (not before or birth_date < before) and (not after or birth_date > after) then
      sum, count = sum + mark, count + 1
    end
  end
  return sum, count
end

local function average_of(location, query)
  local from, to = whole(query.fromDate), whole(query.toDate)
  local older, younger, gender = whole(query.fromAge), whole(query.toAge), query.gender
  if from == false or to == false or older == false or younger == false then return nil end
  if gender ~= nil and gender ~= "m" and gender ~= "f" then return nil end
  local sum, count
  if older or younger or gender then
    local of_place = { columns = PLACE_COLUMNS, above = from, below = to }
    sum, count = marks_of(location, of_place, gender, older and born.before(older), younger and born.before(younger))
  else
    local marks = visits:aggregate("mark", "by_location", location, { above = from, below = to })
    sum, count = marks.sum, marks.count
  end
  if count == 0 then return '{"avg":0.0}' end
  -- Rounds half up to five decimals, in whole numbers, since 0.000005 has no exact binary
  -- representation.
  return '{"avg":' .. floor((200000 * sum + count) / (2 * count)) / 100000 .. '}'
end

return { visits_of = visits_of, average_of = average_of }
