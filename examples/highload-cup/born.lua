-- Computes times of birth from ages in calendar years, in UTC and exact to the second. Ages refer to the time at which
-- the data was generated.

local veche = require "veche"
local floor = math.floor

-- Returns the number of days from 1970-01-01 to a day of a year. Years begin in March, so that the
-- leap day is the last day; `day` counts from 0.
local function days_to(year, day)
  return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + day - 719468
end

-- Converts a number of days since 1970-01-01 to a year that begins in March, and the day in that
-- year, counted from 0.
local function year_of(today)
  local year = floor((today + 719468) / 365.2425)
  if days_to(year + 1, 0) <= today then year = year + 1 end
  if days_to(year, 0) > today then year = year - 1 end
  return year, today - days_to(year, 0)
end

local now, year, day
local known = {}

-- Returns the time of birth, in seconds since 1970, of a user who reaches this age exactly now.
local function before(years)
  if not now then
    now = veche.config.now or veche.time.now()   -- the time is not available while the script is loaded
    year, day = year_of(floor(now / 86400))
  end
  local second = known[years]
  if not second then
    local birthday = days_to(year - years, day)
    -- A birthday on the 29th of February falls on the 28th in other years.
    if birthday == days_to(year - years + 1, 0) then birthday = birthday - 1 end
    second = birthday * 86400 + now % 86400
    if years >= 0 and years < 200 then known[years] = second end
  end
  return second
end

return { before = before }
