---@meta
-- `veche.redis`: a client for Redis 6 and later, and other servers that speak its protocol (RESP3).

---@class veche
---@field redis veche.redis
local veche = {}

---@class veche.redis
local redis = {}

---Returns a client for a server. The connection is opened with the first command, so this may be called while the script is
---loaded. Clients with the same options, in all workers and applications, share one connection, which carries many commands
---at a time.
---
---```lua
---local r = veche.redis.connect("redis://127.0.0.1/0")
---r:set("key", "value", "EX", 10)
---print(r:get("key"))
---```
---The name of a `[[database]]` of the configuration stands for its URL and options.
---
---If the connection is lost, commands in progress fail and the next command reconnects. While the server is unreachable,
---commands fail at once: attempts to connect are 0.05 to 2 seconds apart.
---Errors: an unknown name; an invalid URL; an unknown option, or one out of range; 256 different servers already.
---@param options string|veche.redis.options `redis://user:password@host:port/database?timeout=2`, with TLS `rediss://…`; or a table.
---@return veche.redis.server
function redis.connect(options) end

---@class veche.redis.options
---@field host? string A name or an IP address; "127.0.0.1" by default.
---@field port? integer 6379 by default.
---@field user? string
---@field password? string
---@field database? integer 0 by default.
---@field tls? boolean|{ ca: string } `true`: verifies the server's certificate against the system's certificate authorities; `ca`: against those in this PEM file.
---@field timeout? number Maximum duration of a command in seconds; 5 by default. Blocking commands (BLPOP, XREAD BLOCK, …) have their own timeouts.
---@field connect_timeout? number Seconds for opening a connection; 5 by default.
---@field pool? integer Maximum number of connections for blocking commands, 1 to 10000; 10 by default.
---@field pool_name? string Clients with different names do not share connections; errors contain the name. 1 to 64 bytes;
---host, port and database by default.
---@field wait_timeout? number Seconds to wait for a free connection for a blocking command; 10 by default.
---@field idle_timeout? number Seconds after which an unused connection for blocking commands is closed; 300 by default.
---@field queue? integer Maximum number of messages buffered for a subscription, up to 1000000; 10000 by default.

---Every command of the server is a method, in lower case: `r:hset("h", "field", 1)`. Arguments are strings and numbers.
---Waits.
---
---A reply is a string, a number, a boolean, a list, or a table by keys (`hgetall`). A missing value is nil; within a list it
---is `veche.null`, so that the list has no gap. Integers beyond 2^53 are strings.
---
---Errors, with the kinds that `veche.error` gives: the server's error message ("redis: WRONGTYPE Operation against a key …"),
---"refused"; no connection, "unreachable" and "connection_lost"; no reply in time, "timeout"; "pool_full"; an invalid
---argument; a command that would change the shared connection (SELECT, AUTH, MULTI, WATCH, SUBSCRIBE, MONITOR, …); where
---waiting is impossible. After a connection error the command may or may not have been executed.
---@class veche.redis.server
---@field [string] fun(self: veche.redis.server, ...: string|number): any
local server = {}

---Executes a command by its name, such as one of a module: `r:call("JSON.GET", "key")`. Waits.
---@param name string
---@param ... string|number
---@return any reply
function server:call(name, ...) end

---Executes several commands, up to 10000, in one round trip. Commands of other clients may be executed between them. Waits.
---
---```lua
---local replies = r:pipeline { { "set", "a", 1 }, { "incr", "a" }, { "get", "none" } } -- { "OK", 2, veche.null }
---```
---Error: one of the commands failed. The error contains its number; the other commands were executed.
---@param commands (string|number)[][]
---@return any[] replies
function server:pipeline(commands) end

---Like `pipeline`, but between MULTI and EXEC: no commands of other clients are executed between them.
---Error: one of the commands failed. As usual in Redis, the other commands were executed, unless Redis rejected a
---command before EXEC.
---@param commands (string|number)[][]
---@return any[] replies
function server:transaction(commands) end

---Subscribes to channels, over a connection of its own. Waits for the server's confirmation.
---
---```lua
---local news = r:subscribe("news")
---for message in news:messages() do veche.publish("news", message.data) end
---```
---@param ... string Channels, 1 to 1000.
---@return veche.redis.subscription
function server:subscribe(...) end

---Subscribes to patterns such as `news.*`.
---@param ... string Patterns, 1 to 1000.
---@return veche.redis.subscription
function server:psubscribe(...) end

---A subscription buffers messages until they are received: at most `queue` messages and 32 MiB. Further messages are
---dropped, and `receive` raises an error about the loss.
---@class veche.redis.subscription
local subscription = {}

---Returns the next message. Waits.
---Errors: the connection was lost (raised once; messages published meanwhile are missed, and the subscription reconnects by
---itself after 50 ms to 2 s, whether or not the script receives); an attempt to reconnect failed; messages were dropped
---(raised once, after the messages before the gap); the subscription is closed.
---@param timeout? number Seconds to wait, from 0 to a year; unlimited by default.
---@return { channel: string, data: string, pattern: string? }? message Nil if none arrived in that time.
function subscription:receive(timeout) end

---Iterates over the messages, which `receive()` returns. The loop ends only with an error.
---@return fun(): { channel: string, data: string, pattern: string? }
function subscription:messages() end

---Ends the subscription and closes its connection. A subscription without references is closed by the garbage collector.
function subscription:close() end

return veche
