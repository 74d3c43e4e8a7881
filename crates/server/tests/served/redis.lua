-- Tests `veche.redis` with a real server. Each function of `t` is a test that a request runs by name.
local veche = require "veche"
local check, suite = require "check", require "suite"
local null = veche.null

local r = veche.redis.connect(veche.config.url)
local t = {}

local function try(f, ...)
  local ok, why = pcall(f, ...)
  check.equal(ok, false)
  return why
end

function t.commands_are_methods()
  check.equal(r:set("k", "v"), "OK")
  check.equal(r:get("k"), "v")
  check.equal(r:get("none"), nil)
  check.equal(r:set("k", 1, "EX", 100), "OK")
  check.equal(r:incr("k"), 2)
  check.equal(r:incrby("k", 40), 42)
  check.equal(r:get("k"), "42")
  check.equal(r:ttl("k") > 90, true)
  check.equal(r:call("GeT", "k"), "42")
  check.equal(r:exists("k", "none"), 1)
  check.equal(r:del("k"), 1)
  check.equal(r:set("k", "v", "XX"), nil)
  check.equal(r:ping(), "PONG")
  check.equal(r:echo("вече 🔔\0\255"), "вече 🔔\0\255")
end

function t.replies()
  r:del("h", "l", "s", "z")
  check.equal(r:hset("h", "a", 1, "b", "two"), 2)
  local hash = r:hgetall("h")
  check.equal(hash.a, "1")
  check.equal(hash.b, "two")
  check.equal(next(r:hgetall("none")), nil)
  check.equal(r:rpush("l", "a", "b", "c"), 3)
  local list = r:lrange("l", 0, -1)
  check.equal(table.concat(list, ","), "a,b,c")
  check.equal(veche.json.encode(r:lrange("none", 0, -1)), "[]")
  local some = r:mget("none", "none2")
  check.equal(#some, 2)
  check.equal(some[1] == null, true)
  check.equal(r:sadd("s", "x", "y"), 2)
  local set = r:smembers("s")
  table.sort(set)
  check.equal(table.concat(set, ","), "x,y")
  check.equal(r:zadd("z", 1.5, "m"), 1)
  check.equal(r:zscore("z", "m"), 1.5)
  check.equal(r:eval("return {1, 'two', {3, false}, redis.status_reply('fine')}", 0)[3][2] == null, true)
  check.equal(r:eval("return tonumber('9007199254740993')", 0), "9007199254740992" + 0)
  r:set("large", "9223372036854775807")
  check.equal(r:incrby("large", -1), "9223372036854775806")
  check.equal(r:sismember("s", "x"), 1)
end

function t.whatever_goes_in_comes_out()
  for _, text in ipairs { "", "\0", "\r\n", "*1\r\n$4\r\nPING\r\n", "a b\n", "вече 🔔", "\255\254", ("x"):rep(5000000) } do
    r:set("any", text)
    check.equal(r:get("any") == text, true)
  end
  for number, text in pairs { [0] = "0", [-1] = "-1", [2 ^ 53] = "9007199254740992", [0.1] = "0.1", [1.5] = "1.5" } do
    r:set("number", number)
    check.equal(r:get("number"), text)
  end
  r:set("number", 1e300)
  check.equal(tonumber(r:get("number")), 1e300)
end

function t.errors_have_the_words_of_the_server()
  r:set("text", "x")
  check.fails("redis: ERR value is not an integer or out of range", r.incr, r, "text")
  check.fails("redis: WRONGTYPE Operation against a key holding the wrong kind of value", r.lpush, r, "text", 1)
  check.fails("redis: ERR unknown command", r.nonsense, r)
  check.fails("redis: ERR wrong number of arguments", r.get, r)
  check.equal(r:get("text"), "x")
end

function t.bad_arguments()
  check.fails("bad argument #1 to 'redis:get': a string or a number expected, not nil", r.get, r, nil)
  check.fails("bad argument #2 to 'redis:set': a string or a number expected, not table", r.set, r, "k", {})
  check.fails("bad argument #2 to 'redis:set': a string or a number expected, not boolean", r.set, r, "k", true)
  check.fails("bad argument #2 to 'redis:set': a string or a number expected, not veche.null", r.set, r, "k", null)
  check.fails("bad argument #1 to 'redis:get': a string or a number expected, not NaN", r.get, r, 0 / 0)
  check.fails("bad argument #1 to 'redis:get': a Redis server expected (call it with a colon)", r.get, "k")
  for _, bad in ipairs { "", " ", "a b", "a\0", "\255", ("x"):rep(65), 7, {}, print } do
    check.fails("bad argument #1 to 'redis:call': the name of a command expected", r.call, r, bad)
  end
  check.fails("a Redis server's fields can't be set", function() r.x = 1 end)
  for _, name in ipairs {
    "select", "auth", "hello", "multi", "exec", "discard", "watch", "unwatch", "subscribe_", "monitor", "quit", "reset",
  } do
    if name ~= "subscribe_" then
      check.fails("redis: " .. name:upper() .. " can't be called", r.call, r, name, 1)
      check.fails("command 1: ", r.pipeline, r, { { name, 1 } })
    end
  end
  check.fails("SUBSCRIBE can't be called: use redis:subscribe", r.call, r, "subscribe", "x")
  check.fails("CLIENT can't be called", r.client, r, "reply", "off")
  check.fails("can't wait here", table.sort, { 1, 2 }, function() r:get("k") end)
  local list = "bad argument #1 to 'redis:pipeline': a list of commands expected"
  for _, bad in ipairs { 7, "x", {}, { a = 1 } } do check.fails(list, r.pipeline, r, bad) end
  check.fails(list, r.pipeline, r)
  local function one(words, commands) check.fails("command 2: " .. words, r.pipeline, r, commands) end
  one("a table expected", { { "get", "k" }, "get" })
  one("the first element of a command must be its name, a string", { { "get", "k" }, {} })
  one("the first element of a command must be its name, a string", { { "get", "k" }, { 7 } })
  one("argument 1: a string or a number expected, not table", { { "get", "k" }, { "get", {} } })
  one("this command would block those after it", { { "get", "k" }, { "blpop", "l", 1 } })
  check.fails("bad argument #1 to 'redis:transaction'", r.transaction, r, 7)
  check.fails("bad argument #1 to 'redis:subscribe': a string expected", r.subscribe, r)
  check.fails("bad argument #2 to 'redis:psubscribe': a string expected, not table", r.psubscribe, r, "a", {})
  local connect = veche.redis.connect
  check.fails("bad argument #1 to 'redis.connect': a URL or a table of options expected", connect)
  check.fails("it is neither a URL such as redis://user:password@host/name", connect, "mysql://x")
  check.fails("bad option database to 'redis.connect': a whole number from 0 to 1000000", connect, "redis://x/name")
  check.fails("bad option \"x\" to 'redis.connect'", connect, { x = 1 })
  check.fails("bad option queue to", connect, { queue = 0 })
end

function t.pipelines_and_transactions()
  r:del("a", "l")
  local replies = r:pipeline { { "set", "a", 1 }, { "incr", "a" }, { "get", "none" }, { "lrange", "none", 0, -1 } }
  check.equal(replies[1], "OK")
  check.equal(replies[2], 2)
  check.equal(replies[3] == null, true)
  check.equal(#replies[4], 0)
  check.fails("redis: command 2: WRONGTYPE", r.pipeline, r, { { "set", "a", 1 }, { "lpush", "a", 1 }, { "set", "a", 7 } })
  check.equal(r:get("a"), "7")
  replies = r:transaction { { "incr", "a" }, { "incrby", "a", 10 } }
  check.equal(replies[1], 8)
  check.equal(replies[2], 18)
  check.fails("redis: command 2: WRONGTYPE", r.transaction, r, { { "incr", "a" }, { "lpush", "a", 1 } })
  check.equal(r:get("a"), "19")
  -- If Redis rejects a command when it is queued, no command of the transaction is executed.
  local why = try(r.transaction, r, { { "incr", "a" }, { "nonsense" } })
  check.is_true(why:find("redis: ", 1, true), why)
  check.equal(r:get("a"), "19")
  local many = {}
  for i = 1, 10000 do many[i] = { "rpush", "l", i } end
  check.equal(r:pipeline(many)[10000], 10000)
  many[10001] = { "ping" }
  check.fails("a pipeline may have at most 10000 commands", r.pipeline, r, many)
end

function t.a_thousand_at_once()
  local tasks = {}
  for i = 1, 1000 do
    tasks[i] = veche.spawn(function()
      r:set("n" .. i, i)
      return r:get("n" .. i)
    end)
  end
  for i = 1, 1000 do check.equal(tasks[i]:join(), tostring(i)) end
end

function t.those_that_wait_hold_up_nobody()
  r:del("jobs")
  local few = veche.redis.connect(veche.config.url .. "&pool=2&wait_timeout=0.2")
  local tasks = {}
  for i = 1, 2 do tasks[i] = veche.spawn(few.blpop, few, "jobs", 20) end
  veche.sleep(0.1)
  local began = veche.time.monotonic()
  check.equal(few:ping(), "PONG")
  check.equal(veche.time.monotonic() - began < 1, true)
  local full = 'redis: no free connection within 200ms: all 2 connections of the pool "127.0.0.1:'
  check.fails(full, few.brpop, few, "jobs", 1)
  check.fails('are in use: "BLPOP jobs" for 0.', few.brpop, few, "jobs", 1)
  check.fails(" and 1 more like it [pool_full]", few.brpop, few, "jobs", 1)
  local own = veche.redis.connect(veche.config.url .. "&pool=2&wait_timeout=0.2&pool_name=own")
  check.equal(own:blpop("nothing", 0.05), nil)
  r:rpush("jobs", "one", "two")
  local got = { tasks[1]:join()[2], tasks[2]:join()[2] }
  table.sort(got)
  check.equal(table.concat(got, ","), "one,two")
  check.equal(few:blpop("jobs", 0.05), nil)
  -- A cancelled task takes no more jobs.
  local task = veche.spawn(few.blpop, few, "jobs", 20)
  veche.sleep(0.1)
  task:cancel()
  check.fails("cancelled", task.join, task)
  veche.sleep(0.1)
  check.equal(r:rpush("jobs", "three"), 1)
  check.equal(few:blpop("jobs", 1)[2], "three")
  check.equal(r:xread("COUNT", 1, "STREAMS", "nothing", "0"), nil)
  check.equal(few:xread("BLOCK", 50, "STREAMS", "nothing", "0"), nil)
end

function t.time_is_limited()
  local quick = veche.redis.connect(veche.config.url .. "&timeout=0.2")
  check.fails("redis: no reply within 200ms", quick.eval, quick, [[
    local t = redis.call('time')
    while true do
      local now = redis.call('time')
      if (now[1] - t[1]) * 1000000 + now[2] - t[2] > 600000 then return 1 end
    end]], 0)
  veche.sleep(0.6)
  check.equal(quick:ping(), "PONG")
end

function t.errors_have_kinds()
  local function about(f, ...)
    local ok, why = pcall(f, ...)
    check.equal(ok, false)
    check.equal(type(why), "string")
    return veche.error(why)
  end
  r:set("text", "x")
  local what = about(r.lpush, r, "text", "y")
  check.equal(what.kind, "refused")
  check.equal(what.code, "WRONGTYPE")
  check.equal(what.retryable, false)
  check.equal(what.message:find("redis: WRONGTYPE Operation against a key", 1, true) ~= nil, true)
  what = about(r.pipeline, r, { { "get", "text" }, { "lpush", "text", "y" } })
  check.equal(what.kind, "refused")
  check.equal(what.code, "WRONGTYPE")
  -- The server closes a connection while a command waits on it.
  local few = veche.redis.connect(veche.config.url .. "&pool=1&wait_timeout=0.2")
  local task = veche.spawn(function()
    local ok, why = pcall(few.blpop, few, "never", 20)
    return why
  end)
  veche.sleep(0.1)
  what = about(few.brpop, few, "never", 1)
  check.equal(what.kind, "pool_full")
  check.equal(what.retryable, true)
  for id in r:client("LIST"):gmatch("id=(%d+)[^\n]* cmd=blpop ") do r:client("KILL", "ID", id) end
  what = veche.error(task:join())
  check.equal(what.kind, "connection_lost")
  check.equal(what.retryable, false)
  local quick = veche.redis.connect(veche.config.url .. "&timeout=0.05")
  what = about(quick.eval, quick, [[
    local t = redis.call('time')
    while true do
      local now = redis.call('time')
      if (now[1] - t[1]) * 1000000 + now[2] - t[2] > 200000 then return 1 end
    end]], 0)
  check.equal(what.kind, "timeout")
  check.equal(what.retryable, false)
  veche.sleep(0.2)
  local nobody = veche.redis.connect("redis://127.0.0.1:1/")
  what = about(nobody.get, nobody, "x")
  check.equal(what.kind, "unreachable")
  check.equal(what.retryable, true)
  check.equal(about(error, "redis: own").kind, "script")
end

function t.subscriptions()
  local sub = r:subscribe("news", "more")
  local all = r:psubscribe("n*")
  check.equal(r:publish("news", "one\0"), 2)
  local message = sub:receive(5)
  check.equal(message.channel, "news")
  check.equal(message.data, "one\0")
  check.equal(message.pattern, nil)
  message = all:receive(5)
  check.equal(message.pattern, "n*")
  check.equal(message.channel, "news")
  check.equal(sub:receive(0), nil)
  check.equal(sub:receive(0.05), nil)
  r:publish("more", "two")
  for got in sub:messages() do
    check.equal(got.data, "two")
    break
  end
  local task = veche.spawn(function()
    local got = {}
    for i = 1, 1000 do got[i] = sub:receive(5).data end
    return got
  end)
  for i = 1, 1000 do r:publish("news", i) end
  local got = task:join()
  for i = 1, 1000 do check.equal(got[i], tostring(i)) end
  sub:close()
  check.fails("redis: the subscription has ended", sub.receive, sub)
  sub:close()
  for _ = 1, 100 do
    if r:pubsub("numsub", "news")[2] == 0 then break end
    veche.sleep(0.01)
  end
  check.fails("bad argument #1 to 'subscription:receive': a number of seconds from 0", all.receive, all, -1)
  check.fails("bad argument #1 to 'subscription:receive': a subscription expected", all.receive, 7)
  check.fails("a subscription's fields can't be set", function() all.x = 1 end)
  all:close()
end

function t.a_slow_subscriber_is_told()
  local slow = veche.redis.connect(veche.config.url .. "&queue=10")
  local sub = slow:subscribe("flood")
  for i = 1, 100 do r:publish("flood", i) end
  veche.sleep(0.2)
  for i = 1, 10 do check.equal(sub:receive(1).data, tostring(i)) end
  check.fails("redis: 90 messages were dropped", sub.receive, sub, 1)
  r:publish("flood", "on")
  check.equal(sub:receive(1).data, "on")
  sub:close()
end

function t.lost_connections()
  local sub = r:subscribe("loss")
  local own = veche.redis.connect(veche.config.url .. "&timeout=4")
  for _ = 1, 10 do
    local id = own:client("id")
    r:client("kill", "id", id)
    -- Gives the client time to notice the end of the connection.
    veche.sleep(0.05)
    check.equal(own:ping(), "PONG")
    check.equal(own:client("id") ~= id, true)
  end
  r:client("kill", "type", "pubsub")
  check.fails("redis: the subscription's connection was lost", sub.receive, sub, 5)
  check.equal(sub:receive(0.3), nil)
  r:publish("loss", "again")
  check.equal(sub:receive(5).data, "again")
  sub:close()
end

function t.forgotten_subscriptions_are_let_go()
  local before = #r:client("list", "type", "pubsub")
  for _ = 1, 20 do r:subscribe("forgotten") end
  for _ = 1, 500 do
    for _ = 1, 20 do collectgarbage("step", 1000) end
    r:subscribe("forgotten"):close()
    if r:pubsub("numsub", "forgotten")[2] <= 2 then break end
    veche.sleep(0.01)
  end
  check.is_true(r:pubsub("numsub", "forgotten")[2] <= 2, before)
end

return suite(t, { get = function(req) return tostring(r:get(req.query.key)) end })
