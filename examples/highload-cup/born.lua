-- Who is older than so many years, at the time of the data: in calendar years, by day and second, in UTC.

local veche = require "veche"
local now = veche.config.now or veche.time.now()
local floor = math.floor

-- Days from 1970-01-01 to the day of a year that begins in March, which has the leap day at its end.
local function days_to(year, day)
  return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + day - 719468
end

local today = floor(now / 86400)
-- The year, counted from March, that has today in it; and today's number there, from 0.
local year = floor((today + 719468) / 365.2425)
if days_to(year + 1, 0) <= today then year = year + 1 end
if days_to(year, 0) > today then year = year - 1 end
local day = today - days_to(year, 0)

local known = {}

-- The second at which those were born who are so many years old now.
local function before(years)
  local second = known[years]
  if not second then
    local then_ = days_to(year - years, day)
    -- The 29th of February is the last day of its year; where there is none it is the 28th.
    if then_ == days_to(year - years + 1, 0) then then_ = then_ - 1 end
    second = then_ * 86400 + now % 86400
    if years >= 0 and years < 200 then known[years] = second end
  end
  return second
end

return { before = before }
