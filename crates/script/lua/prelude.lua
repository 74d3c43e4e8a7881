-- Creates the environment of every script: waiting, coroutines that can wait, connections, requests and tasks.
-- Runs once per VM, before the script. `native` holds Rust's functions. The chunk returns the functions that Rust
-- needs.
local native, meta = ...

local co_create, co_resume, co_yield, co_status = coroutine.create, coroutine.resume, coroutine.yield, coroutine.status
local co_running, is_yieldable = coroutine.running, coroutine.isyieldable
local error, next, type, select, unpack, setmetatable, rawset = error, next, type, select, unpack, setmetatable, rawset
local room, is_long = native.room, native.is_long
local WAITS, identify, new_token, wake = native.waits, native.identify, native.token, native.wake

---------------------------------------------------------------------------------------------------- waiting

local loading = true

-- Coroutines of the script that were resumed where nothing can wait, so that their waits would never end.
local stuck = setmetatable({}, { __mode = "k" })

local function can_wait()
  return is_yieldable() and not stuck[co_running()]
end

local function cannot_wait()
  if loading then
    return "can't wait while the script is loaded: do it in app.start"
  end
  return "can't wait here: inside a callback of table.sort, string.gsub or another C function, "
    .. "or a finalizer; collect first, then wait"
end

local function finish(level, ok, ...)
  if ok then return ... end
  error((...), level)
end

-- Waits for the operation that `start(…)` begins; `start` returns the operation's token. Must be called as `return
-- await(…)`: such a call leaves no stack frame, so errors name the script's line.
local function await(start, ...)
  if not can_wait() then error(cannot_wait(), 2) end
  return finish(2, co_yield(WAITS, start(...)))
end

-- Returns the reply: `reply` itself if `is_here` is true, otherwise the call's outcome, which Rust holds. Raises an error
-- if the wait or the call has failed; after a failed wait, `is_here` is its error.
local function replied(level, token, ok, is_here, reply)
  if not ok then error(is_here, level) end
  if is_here then return reply end
  return finish(level, native.outcome(token))
end

-- Does the same as `await` for an outgoing call, and returns the reply as Lua values.
local function await_reply(start, ...)
  if not can_wait() then error(cannot_wait(), 2) end
  local token = start(...)
  return replied(2, token, co_yield(WAITS, token))
end

-- Waits until the token is woken.
local function park(token)
  return finish(3, co_yield(WAITS, token))
end

-- Waits like `park`, for callers that have to clean up after an error: returns true, or false and why the wait has failed.
local function try_park(token)
  return co_yield(WAITS, token)
end

-- Called first by functions that may wait. If the run has used up its time slice, other coroutines
-- run first, so that a loop of calls that need not wait can't block the worker. `level` selects the
-- function that an error names, as in `error`; 1 is the caller of this function.
local function give_way(level)
  if is_long() and can_wait() then
    local ok, why = co_yield(WAITS, native.sleep(0))
    if not ok then error(why, level + 1) end
  end
end

---------------------------------------------------------------------------------------------------- errors

-- Errors of Rust functions are objects. `pcall` and `xpcall` convert them to text for scripts.
local raw_pcall, raw_xpcall, words, capture = pcall, xpcall, native.words, native.capture

local function clean(ok, value, ...)
  if ok then return ok, value, ... end
  local kind = type(value)
  if kind == "userdata" or kind == "string" then return false, words(value) end
  return false, value, ...
end

function pcall(...) return clean(raw_pcall(...)) end

-- For each coroutine in which a handler of xpcall runs, the traceback of the error that it handles.
local traces = setmetatable({}, { __mode = "k" })

local function handled(place, before, ok, ...)
  traces[place] = before
  if ok then return false, ... end
  return clean(false, ...)
end

local function handle(handler, ok, caught, ...)
  if ok then return true, caught, ... end
  -- If the error could not be captured, for example for lack of memory, it is passed on unchanged.
  if type(caught) ~= "table" then return false, caught end
  local place = co_running() or native
  local before = traces[place]
  local _, value = clean(false, caught[1])
  local trace = caught[2] or ""
  traces[place] = type(value) == "string" and native.with_line(value, trace) or trace
  return handled(place, before, raw_pcall(handler, value))
end

-- Replaces Lua's `xpcall`: the handler runs after the stack was unwound, but `debug.traceback` still returns the
-- traceback of the error.
function xpcall(f, handler, ...)
  return handle(handler, raw_xpcall(f, capture, ...))
end

debug = {
  -- Replaces Lua's `debug.traceback([coroutine,] [message [, level]])`.
  traceback = function(...)
    local co, message, level = nil, ...
    if type(message) == "thread" then co, message, level = ... end
    if message ~= nil and type(message) ~= "string" and type(message) ~= "number" then return message end
    local trace = not co and traces[co_running() or native]
    if not trace then
      level = type(level) == "number" and level or (co and 0 or 1)
      -- Without `co`, the level is one more, because this function is on the stack as well.
      trace = native.traceback(co, co and level or level + 1)
    end
    return (message and message .. "\n" or "") .. trace
  end,
}

---------------------------------------------------------------------------------------------------- coroutines

-- The scripts' coroutines that wait for an operation of Veche, as opposed to a call of `coroutine.resume`.
local waiting = setmetatable({}, { __mode = "k" })

local function pass(co, ok, first, ...)
  if not ok then
    waiting[co] = nil
    return clean(false, first)
  end
  if first == WAITS then
    waiting[co] = true
    return pass(co, co_resume(co, co_yield(WAITS, ...)))
  end
  waiting[co] = nil
  return ok, first, ...
end

function coroutine.resume(co, ...)
  room()
  if waiting[co] then return false, "cannot resume a coroutine that waits" end
  if type(co) == "thread" then stuck[co] = not can_wait() or nil end
  return pass(co, co_resume(co, ...))
end

local function unwrap(ok, ...)
  if ok then return ... end
  error((...), 0)
end

function coroutine.wrap(f)
  local co = co_create(f)
  return function(...) return unwrap(coroutine.resume(co, ...)) end
end

---------------------------------------------------------------------------------------------------- veche

local veche = {}

function veche.sleep(seconds)
  return await(native.sleep, seconds)
end

local function check_seconds(name, seconds, level)
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 31536000) then
    error("bad argument #1 to '" .. name .. "': a number of seconds from 0 to 31536000 expected", level or 3)
  end
end

-- The coroutines that wait in `veche.stopping`, by the tokens of their waits.
local until_stop = {}

function veche.stopping(seconds)
  if seconds ~= nil then check_seconds("stopping", seconds) end
  if native.is_retired() then return true end
  if seconds == nil or seconds == 0 then return false end
  if not can_wait() then error(cannot_wait(), 2) end
  local token = native.sleep(seconds)
  until_stop[token] = true
  local ok, why = try_park(token)
  until_stop[token] = nil
  if not ok then error(why, 2) end
  return native.is_retired()
end

local function wake_stop_waits()
  for token in pairs(until_stop) do wake(token) end
end

-- Tasks, each of which runs in a coroutine of its own.

local Task = {}
Task.__index = Task
Task.__metatable = false
local tasks = setmetatable({}, { __mode = "v" })

local function wake_all(waiters)
  for index = 1, #waiters do
    wake(waiters[index])
    waiters[index] = nil
  end
end

-- Running tasks, by number, whose failure must be handled even if no coroutine joins them. The
-- table keeps the tasks from being garbage-collected. Cancelled tasks are among them: without its task
-- a cancellation would be logged as an error.
local kept = {}

local function ended(task, ok, ...)
  kept[task.number] = nil
  task.state = ok and "done" or "failed"
  task.count, task.results = select("#", ...), { ... }
  wake_all(task)
end

local function run_task(task, f, ...)
  return ended(task, true, f(...))
end

function veche.spawn(f, ...)
  if type(f) ~= "function" then error("bad argument #1 to 'spawn': a function expected", 2) end
  local task = setmetatable({ state = "running" }, Task)
  task.number = native.spawn(run_task, task, f, ...)
  tasks[task.number] = task
  return task
end

-- Starts a task that has to continue even if memory is short: when the task fails, it starts again with `go_on`. If
-- `first` is given, the task begins with `first`, and a limit may refuse the task. Without `first`, the task begins
-- with `go_on`, and no limit applies.
local function spawn_lasting(go_on, first)
  local task = setmetatable({ state = "running", go_on = go_on }, Task)
  local spawn = first and native.spawn or native.respawn
  local number = spawn(run_task, task, first or go_on)
  task.number, tasks[number], kept[number] = number, task, task
  return task
end

-- Handles a failed task; returns whether its error is awaited, and whether its service fails.
local function task_failed(number, words)
  local task = tasks[number]
  if not task then return false, false end
  local is_cancelled = task.state == "cancelled"
  if task.go_on and not is_cancelled and not native.is_retired() then
    kept[number] = nil
    number = native.respawn(run_task, task, task.go_on)
    task.number, tasks[number], kept[number] = number, task, task
    return false, false
  end
  local is_awaited = task[1] ~= nil or is_cancelled
  if is_cancelled then words = "cancelled" end
  ended(task, false, words)
  return is_awaited, task.fails_service == true and not is_cancelled
end

local function wait_in(list)
  local token = new_token()
  list[#list + 1] = token
  return park(token)
end

function Task:join()
  if self.state == "running" or self.state == "cancelled" then
    if not can_wait() then error(cannot_wait(), 2) end
    wait_in(self)
  else
    give_way(2)
  end
  if self.state == "failed" then error(self.results[1], 2) end
  return unpack(self.results, 1, self.count)
end

function Task:cancel()
  if self.state ~= "running" then return false end
  self.state = "cancelled"
  kept[self.number] = self
  native.cancel(self.number)
  return true
end

-- Timers.

local timer = {}
veche.timer = timer
timer.sleep = veche.sleep

local function check_function(name, f)
  if type(f) ~= "function" then error("bad argument #2 to '" .. name .. "': a function expected", 3) end
end

function timer.after(seconds, f, ...)
  check_seconds("after", seconds)
  check_function("after", f)
  return veche.spawn(function(...)
    await(native.sleep, seconds)
    return f(...)
  end, ...)
end

-- Returns the interval in seconds, and whether the first error ends the timer.
local function check_interval(every)
  if type(every) ~= "table" then
    check_seconds("every", every, 4)
    every = { seconds = every }
  end
  for key in next, every do
    if key ~= "seconds" and key ~= "on_error" then
      error("bad argument #1 to 'every': only seconds and on_error expected", 3)
    end
  end
  local seconds, on_error = every.seconds, every.on_error
  check_seconds("every", seconds, 4)
  if seconds < 0.001 then error("bad argument #1 to 'every': at least 0.001 seconds expected", 3) end
  if on_error ~= nil and on_error ~= "log" and on_error ~= "fail" then
    error("bad argument #1 to 'every': on_error: \"log\" or \"fail\" expected", 3)
  end
  return seconds, on_error == "fail"
end

function timer.every(every, f, ...)
  local seconds, is_fragile = check_interval(every)
  check_function("every", f)
  local count, arguments = select("#", ...), { ... }
  local due, task = native.now(), nil
  local function go_on()
    -- pcall can't catch some errors, such as the end of a run that took too long. With `go_on`, the
    -- timer continues even after such an error in `f`.
    if not is_fragile then task.go_on = go_on end
    while true do
      local now = native.now()
      -- Calls that were missed while `f` ran are skipped.
      due = due + seconds * math.max(1, math.ceil((now - due) / seconds))
      -- The difference of large numbers may be slightly negative.
      await(native.sleep, math.max(0, due - now))
      if native.is_retired() then return end
      f(unpack(arguments, 1, count))
      -- `f` may have caught the error of the cancellation.
      if task.state ~= "running" then error("cancelled", 0) end
    end
  end
  task = veche.spawn(go_on)
  task.fails_service, kept[task.number] = is_fragile, task
  return task
end

-- Publishing.

-- Waits until the hub has room for the publication; raises an error where waiting is impossible.
local function publish_later(publish, to, data, kind)
  while true do
    local token = publish(to, data, kind, can_wait())
    if not token then return end
    local ok, why = co_yield(WAITS, token)
    if not ok then error(why, 3) end
  end
end

-- Logging.

local log = {}
veche.log = log
for _, level in ipairs { "debug", "info", "warn", "error" } do
  log[level] = function(...)
    room()
    native.log(level, ...)
  end
end
print = log.info

for name, module in pairs(native.modules) do veche[name] = module end
veche.config = native.config
veche.error = native.about_error
veche.file = native.file
veche.worker = native.worker

---------------------------------------------------------------------------------------------------- connections

local methods = { send = native.send, close = native.close }

function methods.subscribe(conn, channel, options)
  local index, generation = identify(conn)
  if options == nil then return await(native.subscribe, index, generation, channel) end
  return await_reply(native.subscribe, index, generation, channel, options)
end

function methods.renew(conn, token)
  local index, generation = identify(conn)
  return await(native.renew, index, generation, token)
end

function methods.unsubscribe(conn, channel)
  local index, generation = identify(conn)
  return native.unsubscribe(index, generation, channel)
end

local attributes_meta = {
  __index = function(self, name) return native.attribute(self[1], self[2], name) end,
  __newindex = function(self, name, value) native.set_attribute(self[1], self[2], name, value) end,
  __metatable = false,
}

local fields = native.connection_fields

function fields.attributes(index, generation)
  return setmetatable({ index, generation }, attributes_meta)
end

function meta.__index(conn, key)
  local method = methods[key]
  if method then return method end
  local field = fields[key]
  if not field then error("a connection has no field '" .. tostring(key) .. "'", 2) end
  return field(identify(conn))
end

function meta.__newindex(_, key)
  error("a connection's fields can't be set; use conn.attributes." .. tostring(key), 2)
end

function meta.__tostring(conn) return "connection " .. fields.id(identify(conn)) end
function meta.__eq(a, b)
  local index, generation = identify(a)
  local other_index, other_generation = identify(b)
  return index == other_index and generation == other_generation
end
meta.__metatable = false

---------------------------------------------------------------------------------------------------- requests

-- The methods of a request. Other files add methods to this table.
local request_methods = {}

local request_fields = native.request_fields
local request_meta = {
  -- Each field is read from Rust once and then stored in the request.
  __index = function(request, key)
    local field = request_fields[key]
    if not field then return request_methods[key] end
    local value = field(request[1])
    rawset(request, key, value)
    return value
  end,
  __metatable = false,
}

local respond, write = native.respond, native.write

-- If there is a function `body`, lets it write the response body.
local function stream(number, body)
  if not body then return end
  body(function(data)
    if not can_wait() then error(cannot_wait(), 2) end
    give_way(2)
    local token = write(number, data)
    if token then return finish(2, co_yield(WAITS, token)) end
    return true
  end)
  return native.finish(number)
end

local function serve(handler, number)
  return stream(number, respond(number, handler(setmetatable({ number }, request_meta))))
end

local function shake(handler, number)
  return native.decide(number, handler(setmetatable({ number }, request_meta)))
end

---------------------------------------------------------------------------------------------------- globals

local declared = _G
setmetatable(_G, {
  __newindex = function(_, name, value)
    if not loading then
      error("undeclared global '" .. tostring(name) .. "': write local, or set it while the script is loaded", 2)
    end
    rawset(declared, name, value)
  end,
  __metatable = false,
})

-- All strings share one metatable, so scripts must not reach it. Methods can still be added through its `__index`
-- table, `string`.
getmetatable("").__metatable = false

local function loaded() loading = false end

local function as_function(callable)
  return function(...) return callable(...) end
end

return veche, {
  serve = serve, shake = shake, task_failed = task_failed, wake_stop_waits = wake_stop_waits, loaded = loaded,
  as_function = as_function,
  -- The following functions are for the other modules in Lua.
  await = await, await_reply = await_reply, give_way = give_way, native = native, try_park = try_park, wake = wake, new_token = new_token,
  shared = native.shared, client = native.client, can_wait = can_wait, cannot_wait = cannot_wait, publish_later = publish_later,
  spawn = veche.spawn, spawn_lasting = spawn_lasting, xpcall = xpcall, traceback = debug.traceback, request_methods = request_methods, connection_methods = methods,
  coroutine_running = co_running, coroutine_status = co_status, pcall = pcall,
}
