---@meta veche.bench
-- `require "veche.bench"`, only in scripts of `veche bench script`: simulates users of a server under load. Such a script can
-- also use all of `veche`, and acts for its users with `veche.http` and `veche.websocket`.

---@class veche.bench
local bench = {}

---A simulated user. All sessions of the user get the same table, so a session can store values in it for later ones.
---@class veche.bench.user
---@field number integer From 0.
---@field session integer Number of the user's session, from 1.
---@field url string The URL from the command line.

---Sets the function that runs a session of a user. Each user runs one session after another, each in a new coroutine, until
---the end of the run; a session that raises an error counts as failed, and the user starts the next one a second later. Call
---it once, while the script is loaded.
---
---```lua
---bench.user(function(user)
---  local answer = bench.action("log in", veche.http.post, user.url .. "/login", { json = { name = "ann" .. user.number } })
---  veche.sleep(1)
---end)
---```
---Errors: `session` is not a function; a second call.
---@param session fun(user: veche.bench.user)
function bench.user(session) end

---Calls a function and measures its duration. An error counts as a failure of the action and is raised again. After the end
---of the run no action is started: the call ends the session instead.
---Errors: an invalid name; `run` is not a function; where waiting is impossible.
---@param name string 1 to 64 bytes of UTF-8, the same for actions of one kind: up to 1,000 different names are reported.
---@param run function
---@param ... any Its arguments.
---@return any ... What the function returns.
function bench.action(name, run, ...) end

---Records an action with a given duration, such as a delivery whose message contains the time of sending.
---Errors: an invalid name; invalid seconds.
---@param name string As for `action`.
---@param seconds number From 0 to 3600.
function bench.record(name, seconds) end

---Returns the time of a monotonic clock, in seconds with nanosecond resolution; all users share the clock.
---@return number
function bench.now() end

---Returns whether the run has ended, for sessions that only wait for messages.
---@return boolean
function bench.is_over() end

return bench
