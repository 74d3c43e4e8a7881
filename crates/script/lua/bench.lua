-- `veche.bench`: the users that `veche bench script` simulates. The script defines the session of a user and its timed
-- actions.
local native, inner, veche = ...

local can_wait, pcall, spawn, sleep = inner.can_wait, inner.pcall, veche.spawn, veche.sleep
local error, rawequal, setmetatable, tostring, type = error, rawequal, setmetatable, tostring, type

-- The seconds between two checks of whether the run has started, and the pause after a failed
-- session.
local LOOK_S, PAUSE_S = 0.01, 1
-- The longest name of an action in bytes.
local NAME_BYTES_MAX = 64

local bench = {}

local session
-- The error of the last failed action. A session that ends with this error is not counted as failed again.
local action_error
-- The error that ends a session when the run has ended.
local over = setmetatable({}, { __tostring = function() return "the run has ended" end, __metatable = false })

local function bad(name, number, what)
  error("bad argument #" .. number .. " to '" .. name .. "': " .. what .. " expected", 3)
end

local function is_name(name)
  return type(name) == "string" and name ~= "" and #name <= NAME_BYTES_MAX
end

function bench.user(run)
  if type(run) ~= "function" then bad("bench.user", 1, "a function") end
  if session then error("bench.user: called twice", 2) end
  session = run
  native.has_session()
end

local function ended(name, began, ok, ...)
  if ok then
    native.action_ended(name, began)
    return ...
  end
  local why = ...
  native.action_ended(name, began, tostring(why))
  action_error = why
  error(why, 0)
end

function bench.action(name, run, ...)
  if not is_name(name) then bad("bench.action", 1, "a name of 1 to 64 bytes") end
  if type(run) ~= "function" then bad("bench.action", 2, "a function") end
  if not can_wait() then error("bench.action: allowed only in a session, and not in a callback such as that of table.sort", 2) end
  local began = native.action_begins()
  if not began then error(over, 0) end
  return ended(name, began, pcall(run, ...))
end

function bench.record(name, seconds)
  if not is_name(name) then bad("bench.record", 1, "a name of 1 to 64 bytes") end
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 3600) then
    bad("bench.record", 2, "a number of seconds from 0 to 3600")
  end
  native.record(name, seconds)
end

bench.now = native.now
bench.is_over = native.is_over

-- Waits for the start of a user. A sleep uses the clock of the turn, which may be late, so the wait is repeated until the
-- start: actions recorded before it would not be counted.
local function await_start(number)
  local seconds = native.begins_in(number)
  repeat
    sleep(seconds or LOOK_S)
    seconds = native.begins_in(number)
  until seconds and seconds <= 0
end

local function play(number)
  await_start(number)
  if native.is_over() then return end
  native.user_begins()
  local user = { number = number, session = 0, url = native.url }
  while not native.is_over() do
    user.session = user.session + 1
    local ok, why = pcall(session, user)
    -- Sessions cut off by the end of the run count neither as completed nor as failed.
    if native.is_over() then return end
    if ok then
      native.session_ended(true)
      sleep(0)
    else
      local is_counted = action_error ~= nil and rawequal(why, action_error)
      native.session_ended(false, not is_counted and tostring(why) or nil)
      sleep(PAUSE_S)
    end
  end
end

local handlers = {}

function handlers.run()
  local first, last = native.users()
  for number = first, last do spawn(play, number) end
end

return bench, handlers
