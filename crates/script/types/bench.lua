---@meta veche.bench
-- `require "veche.bench"`, in scripts of `veche bench script` alone: users of a server under load. Such a script has all of
-- `veche` beside it, and plays its users with `veche.http` and `veche.websocket`.

---@class veche.bench
local bench = {}

---A user, as a session gets it: the same table in all sessions of the user, so that it can keep what it likes in it.
---@class veche.bench.user
---@field number integer From 0.
---@field session integer Which of the user's sessions it is, from 1.
---@field url string The address of the command line.

---Says what a session of a user is. Users begin one session after the other, each in a coroutine of its own, until the
---time of the run is over; one that raises an error is counted as failed, and the user begins the next one a second later.
---Called once, while the script is loaded.
---Errors: no function; called before.
---@param session fun(user: veche.bench.user)
---
---```lua
---bench.user(function(user)
---  local answer = bench.action("log in", veche.http.post, user.url .. "/login", { json = { name = "ann" .. user.number } })
---  veche.sleep(1)
---end)
---```
function bench.user(session) end

---Calls a function and times it. Whatever it raises is counted as a failure of the action, and raised again. Once the time
---of the run is over no action begins: the call ends the session instead.
---Errors: a bad name; no function; where nothing can wait.
---@param name string 1 to 64 bytes of UTF-8, the same for actions of one kind: at most 1,000 different ones are told apart.
---@param run function
---@param ... any Its arguments.
---@return any ... What the function returns.
function bench.action(name, run, ...) end

---Counts an action that has taken so long, such as a delivery whose message says when it was sent.
---Errors: a bad name; bad seconds.
---@param name string As of `action`.
---@param seconds number From 0 to 3600.
function bench.record(name, seconds) end

---The time of a monotonic clock in seconds, to the nanosecond: the same for all users.
---@return number
function bench.now() end

---Whether the time of the run is over: for sessions that wait for messages only.
---@return boolean
function bench.is_over() end

return bench
