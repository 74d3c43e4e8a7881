---@meta
-- `veche.redis`: Redis 6 and later, and what speaks its protocol (RESP3).

---@class veche
---@field redis veche.redis
local veche = {}

---@class veche.redis
local redis = {}

---A server. Connects when the first command comes, so it may be called while the script is loaded. Those with the same
---options, in all workers and applications, share one connection, over which many commands are under way at once.
---
---```lua
---local r = veche.redis.connect("redis://127.0.0.1/0")
---r:set("key", "value", "EX", 10)
---print(r:get("key"))
---```
---When the connection is lost, commands under way fail and the next one connects again. While the server is away, commands
---fail at once: attempts have pauses of 0.05 to 2 seconds between them.
---Errors: a bad URL; an option that there is not, or out of its range; 256 different servers already.
---@param options string|veche.redis.options `redis://user:password@host:port/database?timeout=2`, with TLS `rediss://…`; or a table.
---@return veche.redis.server
function redis.connect(options) end

---@class veche.redis.options
---@field host? string A name or an address; "127.0.0.1" unless told.
---@field port? integer 6379 unless told.
---@field user? string
---@field password? string
---@field database? integer 0 unless told.
---@field tls? boolean|{ ca: string } `true`: the server's certificate is checked against the system's authorities; `ca`: against that PEM file.
---@field timeout? number Seconds that a command may take; 5 unless told. Those that wait in the server (BLPOP, XREAD BLOCK, …) have a timeout of their own.
---@field connect_timeout? number Seconds until a connection has to be there; 5 unless told.
---@field pool? integer Most connections for commands that wait in the server, 1 to 10000; 10 unless told.
---@field pool_name? string Those with another name share no connections, and its errors say it. 1 to 64 bytes; host, port and
---database unless told.
---@field wait_timeout? number Seconds to wait for one of those to be free; 10 unless told.
---@field idle_timeout? number Seconds after which one of those that nobody uses is closed; 300 unless told.
---@field queue? integer Most messages of a subscription that wait to be received, up to 1000000; 10000 unless told.

---Every command of the server is a method, its name in small letters: `r:hset("h", "field", 1)`. Arguments are strings and
---numbers. Waits.
---
---A reply is a string, a number, a boolean, a list, or a table by keys (`hgetall`). What is not there is nil; within a list
---it is `veche.null`, so that the list has no gap. Whole numbers beyond 2^53 are strings.
---
---Errors, with their kinds as `veche.error` tells them: the server's words ("redis: WRONGTYPE Operation against a key …"),
---"refused"; no connection, "unreachable" and "connection_lost"; no reply in time, "timeout"; "pool_full"; a bad argument; a command that would change the connection for all (SELECT, AUTH, MULTI, WATCH, SUBSCRIBE, MONITOR, …); where
---nothing can wait. After an error of the connection a command may or may not have been carried out.
---@class veche.redis.server
---@field [string] fun(self: veche.redis.server, ...: string|number): any
local server = {}

---A command by its name, such as that of a module: `r:call("JSON.GET", "key")`. Waits.
---@param name string
---@param ... string|number
---@return any reply
function server:call(name, ...) end

---Several commands at once, 10000 at most: one round trip. Commands of others may come between them. Waits.
---
---```lua
---local replies = r:pipeline { { "set", "a", 1 }, { "incr", "a" }, { "get", "none" } } -- { "OK", 2, veche.null }
---```
---Error: one of the commands has failed, with its number; the others were carried out.
---@param commands (string|number)[][]
---@return any[] replies
function server:pipeline(commands) end

---The same between MULTI and EXEC: nothing of others comes between them.
---Error: one of the commands has failed; as Redis has it, the others were carried out, unless it was found bad before.
---@param commands (string|number)[][]
---@return any[] replies
function server:transaction(commands) end

---Messages of channels, over a connection of its own. Waits until the server has confirmed it.
---
---```lua
---local news = r:subscribe("news")
---for message in news:messages() do veche.publish("news", message.data) end
---```
---@param ... string Channels, 1 to 1000.
---@return veche.redis.subscription
function server:subscribe(...) end

---The same by patterns such as `news.*`.
---@param ... string Patterns, 1 to 1000.
---@return veche.redis.subscription
function server:psubscribe(...) end

---Messages are kept until they are received: `queue` of them, 32 MiB at most; what comes beyond is dropped, and told.
---@class veche.redis.subscription
local subscription = {}

---The next message. Waits.
---Errors: the connection was lost, once, and what is published meanwhile is missed: it connects again by itself, with
---pauses of 50 ms to 2 s, whether anybody receives or not; an attempt failed; messages were dropped, once, behind those
---before; the subscription is closed.
---@param timeout? number Seconds to wait, from 0 to a year; for ever unless told.
---@return { channel: string, data: string, pattern: string? }? message Nil if none has come in that time.
function subscription:receive(timeout) end

---An iterator over `receive()`: ends with an error only.
---@return fun(): { channel: string, data: string, pattern: string? }
function subscription:messages() end

---Ends it, and its connection. One that the script has forgotten is ended when the collector finds it.
function subscription:close() end

return veche
