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
---@field password veche.password
---@field random veche.random
---@field time veche.time
---@field uuid veche.uuid
local veche = {}

---What a program can tell an error by: what `pcall` gives, `app.error` or `onerror` are called with. Never an error.
---
---```lua
---local ok, why = pcall(db.execute, db, "delete from carts where id = ?", id)
---if not ok and veche.error(why).retryable then return 503 end
---```
---@param why any
---@return veche.error
function veche.error(why) end

---@class veche.error
---@field kind "timeout"|"pool_full"|"unreachable"|"connection_lost"|"refused"|"invalid"|"broken"|"full"|"closed"|"cancelled"|"script"
---"script" is any error that is of no client.
---@field code integer|string|nil What the other side calls it: MySQL's number, Redis's first word ("WRONGTYPE"), the status that
---a WebSocket was refused with, the number of an error of the API.
---@field retryable boolean Nothing was done, and the same call may go well later. False after "timeout" and "connection_lost": it
---may have been done.
---@field message string The words, without the kind.

---Waits without holding up anything but the calling coroutine. Never shorter than asked for. With 0 it goes on behind all
---other coroutines that can run, after the worker has looked for new events.
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

---How something is published: see `veche.api`.
---@class veche.publish.options: veche.api.terms
---@field kind? "text"|"binary" "text" unless told.

---Publishes to a channel of subscribers, on all workers. Nothing says who got it. Waits in two cases: what was published in
---this turn is over 1 MiB, until it has left; too much waits that the channel can't take (1024 publications or 4 MiB, for
---all channels of a worker 16384 or 64 MiB), until half of it has gone. With options it waits until it is done, and returns
---what became of it.
---Errors: a bad name; text that is not UTF-8; a table as "binary"; other arguments or options; "cancelled"; where nothing can
---wait, "too much waits to be published to …" and more than 64 MiB in one turn. With options also those of `veche.api`.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@param data string|table A table is published as JSON.
---@param options? "text"|"binary"|veche.publish.options "text" unless told.
---@return veche.api.published? published Of a call with options.
function veche.publish(channel, data, options) end

---Publishes to all connections of a user, on all workers. Waits, options and errors as those of `publish`.
---@param user string
---@param data string|table A table is published as JSON.
---@param options? "text"|"binary"|veche.publish.options "text" unless told.
---@return veche.api.published? published Of a call with options.
function veche.push(user, data, options) end

---@class veche.history.options
---@field since? string Behind this position, or before it with `reverse`: "EPOCH:OFFSET".
---@field limit? integer At most so many, 0 to 100000; 100 unless told.
---@field reverse? boolean The latest first.

---@class veche.publication
---@field data string
---@field kind "text"|"binary"
---@field position string "EPOCH:OFFSET".
---@field at number When it was published, in seconds since 1970.
---@field by? veche.member Who published it, where a client did.
---@field tags? table<string, string>

---Reads what a channel remembers (`history_size` of its namespace). Waits for the answer of its home.
---Errors: a bad name or option; "the channel keeps no history"; "the position does not belong to the channel's current stream";
---"cancelled"; where nothing can wait.
---@param channel string
---@param options? veche.history.options
---@return veche.publication[] publications The oldest first unless told.
---@return string position Of the latest publication, whether it is among them or not.
function veche.history(channel, options) end

---A connection, as others see it.
---@class veche.member
---@field user string "" if it is anonymous.
---@field client string
---@field info? string What is known of the connection: JSON.

---Who is in a channel (`presence` of its namespace). Waits for the answer of its home.
---Errors: a bad name; "the channel keeps no presence"; more than 10000; "cancelled"; where nothing can wait.
---@param channel string
---@return veche.member[] members In no order.
function veche.presence(channel) end

---@class veche.presence_stats
---@field clients integer Connections.
---@field users integer Users; all that are anonymous are one.

---How many are in a channel, at no cost whatever their number. Waits, and errors, as `presence`.
---@param channel string
---@return veche.presence_stats
function veche.presence_stats(channel) end

---@class veche.user_status
---@field connections integer On all workers.
---@field last_seen? number When the last of them went, in seconds since 1970, if none is there and that is known.

---Whether a user is there. Waits for the answer. Errors: not a name; "cancelled"; where nothing can wait.
---@param user string
---@return veche.user_status
function veche.user_status(user) end

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
