---@meta veche
-- Types for editors, and the reference of what scripts can call. Nothing here runs.

---@class veche
---@field config table The application's options as the configuration has them. A JSON null is `veche.json.null`.
---@field worker integer Number of the worker that this VM runs on, from 0.
---@field timer veche.timer
---@field log veche.log
---@field base64 veche.base64
---@field hash veche.hash
---@field hmac veche.hmac
---@field json veche.json
---@field metrics veche.metrics
---@field random veche.random
---@field time veche.time
---@field uuid veche.uuid
local veche = {}

---Waits without holding up anything but the calling coroutine. Never shorter than asked for.
---Errors: where nothing can wait (while the script is loaded, inside `table.sort`, `string.gsub` or another C function);
---"cancelled" when the task is cancelled meanwhile.
---@param seconds number From 0 to 31536000; fractions count, in milliseconds.
function veche.sleep(seconds) end

---Whether the script is to end: newer code has taken over, it was taken out of the configuration, or the server stops.
---With seconds it waits so long at most, and no longer than until that is so: `while not veche.stopping(60) do … end`.
---Errors: like those of `sleep`.
---@param seconds? number From 0 to 31536000; 0 unless told.
---@return boolean
function veche.stopping(seconds) end

---Starts a coroutine of its own, which begins after the caller has ended or waits. An error in it is logged, or goes to
---whoever has called `join` by then.
---@generic T
---@param f fun(...: T)
---@param ... T What `f` is called with.
---@return veche.task
function veche.spawn(f, ...) end

---Publishes to a channel of subscribers, on all workers. Nothing waits, and nothing says who got it.
---Errors: a bad name; text that is not UTF-8; more than 4 GiB in one turn.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@param data string
---@param kind? "text"|"binary" "text" unless told.
function veche.publish(channel, data, kind) end

---Publishes to all connections of a user, on all workers. Errors as those of `publish`.
---@param user string
---@param data string
---@param kind? "text"|"binary" "text" unless told.
function veche.push(user, data, kind) end

---A spawned coroutine.
---@class veche.task
local task = {}

---Waits for its end and gives what it returned. As often as you like.
---Errors: the task's own error; "cancelled".
---@return any ...
function task:join() end

---Ends it: what it waits for fails with "cancelled", which it may catch to tidy. One that has not begun never does.
---@return boolean was_running False if it was over or cancelled before.
function task:cancel() end

return veche
