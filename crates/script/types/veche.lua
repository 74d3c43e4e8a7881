---@meta veche
-- Type definitions for editors, and the reference of the API for scripts. Nothing in these files is executed.

---@class veche
---@field config table The `config` of the application in the server's configuration. A JSON null is `veche.json.null`.
---@field worker integer Number of the worker that runs this VM, from 0.
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

---Classifies an error, so that a program can react to it: one caught by `pcall`, or passed to `app.error` or `onerror`.
---Never raises an error.
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
---"script" is any error that does not come from a client library of `veche`.
---@field code integer|string|nil The other side's code: MySQL's error number, the first word of a Redis error ("WRONGTYPE"),
---the status with which a WebSocket handshake was refused, the number of an API error.
---@field retryable boolean True if nothing was done and the same call may succeed later. False after "timeout" and
---"connection_lost", when it may have been done.
---@field message string The error's text without the kind.

---Suspends the calling coroutine; nothing else is blocked. Never returns early. With 0 it continues after all other
---coroutines that can run, once the worker has polled for new events.
---Errors: a call where waiting is impossible (while the script is loaded, inside `table.sort`, `string.gsub` or another C
---function); "cancelled" if the task is cancelled meanwhile.
---@param seconds number From 0 to 31536000; fractions are allowed, down to milliseconds.
function veche.sleep(seconds) end

---Returns whether the script is about to end: newer code has replaced it, it was removed from the configuration, or the
---server is shutting down. With `seconds` it waits for that, but not longer than this time:
---`while not veche.stopping(60) do … end`.
---Errors: those of `sleep`.
---@param seconds? number From 0 to 31536000; 0 by default.
---@return boolean
function veche.stopping(seconds) end

---Starts a new coroutine, which runs once the caller ends or waits. An error in it is logged, unless another coroutine
---has called `join` by then, in which case `join` raises it there.
---@generic T
---@param f fun(...: T)
---@param ... T Arguments of `f`.
---@return veche.task
function veche.spawn(f, ...) end

---Options of a publication; see `veche.api`.
---@class veche.publish.options: veche.api.terms
---@field kind? "text"|"binary" "text" by default.

---Publishes to a channel, for subscribers on all workers. Without options there is no result, and the call waits in two
---cases only: if more than 1 MiB was published in this turn, until it has been sent; and if too many publications are
---queued because the channel can't take them (1024 publications or 4 MiB; for all channels of a worker 16384 or 64 MiB),
---until half of them have been sent. With options it waits for the outcome and returns it.
---Errors: an invalid name; text that is not UTF-8; a table as "binary"; invalid arguments or options; "cancelled". Where
---waiting is impossible, also "too many publications to … are waiting", and more than 64 MiB in one turn. With options,
---also the errors of `veche.api`.
---@param channel string 1 to 255 bytes of UTF-8 without control characters.
---@param data string|table A table is published as JSON.
---@param options? "text"|"binary"|veche.publish.options "text" by default.
---@return veche.api.published? published Only if options are given.
function veche.publish(channel, data, options) end

---Publishes to all connections of a user, on all workers. Waits, takes the same options and raises the same errors as
---`publish`.
---@param user string
---@param data string|table A table is published as JSON.
---@param options? "text"|"binary"|veche.publish.options "text" by default.
---@return veche.api.published? published Only if options are given.
function veche.push(user, data, options) end

---@class veche.history.options
---@field since? string Start after this position, or before it with `reverse`: "EPOCH:OFFSET".
---@field limit? integer Maximum number of publications, 0 to 100000; 100 by default.
---@field reverse? boolean Newest first.

---@class veche.publication
---@field data string
---@field kind "text"|"binary"
---@field position string "EPOCH:OFFSET".
---@field at number Time of publication, in seconds since 1970.
---@field by? veche.member The client that published it, if it was a client.
---@field tags? table<string, string>

---Reads a channel's history (`history_size` of its namespace). Waits for the answer of the channel's home worker.
---Errors: an invalid name or option; "the channel has no history"; "the position does not belong to the channel's current
---stream"; "cancelled"; a call where waiting is impossible.
---@param channel string
---@param options? veche.history.options
---@return veche.publication[] publications Oldest first by default.
---@return string position Position of the newest publication of the channel, whether it is in the list or not.
function veche.history(channel, options) end

---A connection as other clients see it.
---@class veche.member
---@field user string "" for an anonymous connection.
---@field client string The connection's id.
---@field info? string Information about the connection, as JSON.

---Lists the members of a channel (`presence` of its namespace). Waits for the answer of the channel's home worker.
---Errors: an invalid name; "the channel has no presence"; more than 10000 members; "cancelled"; a call where waiting is
---impossible.
---@param channel string
---@return veche.member[] members In no particular order.
function veche.presence(channel) end

---@class veche.presence_stats
---@field clients integer Number of connections.
---@field users integer Number of users; all anonymous connections count as one.

---Counts the members of a channel, at a constant cost. Waits and raises the same errors as `presence`.
---@param channel string
---@return veche.presence_stats
function veche.presence_stats(channel) end

---@class veche.user_status
---@field connections integer Number of connections on all workers.
---@field last_seen? number When the last connection closed, in seconds since 1970, if none is open and the time is known.

---Returns whether a user is online. Waits for the answer. Errors: an invalid name; "cancelled"; a call where waiting is
---impossible.
---@param user string
---@return veche.user_status
function veche.user_status(user) end

---A coroutine started with `veche.spawn`.
---@class veche.task
local task = {}

---Waits until the task ends, and returns its results. May be called any number of times.
---Errors: the task's own error; "cancelled".
---@return any ...
function task:join() end

---Cancels the task: the call in which it waits fails with "cancelled", which the task may catch to clean up. A task that
---has not started yet never starts.
---@return boolean was_running False if it had ended or was already cancelled.
function task:cancel() end

return veche
