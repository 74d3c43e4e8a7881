-- `veche.redis`: servers and subscriptions as objects; Rust runs the commands. Every field of a server object is a
-- command.
local inner = ...

local native, await_reply, drop_lease = inner.native.redis, inner.await_reply, inner.native.drop_lease
local error, rawset, setmetatable, type = error, rawset, setmetatable, type

-- `servers` maps server objects to numbers. `subscriptions` maps subscription objects to leases and servers.
local servers = setmetatable({}, { __mode = "k" })
local subscriptions = setmetatable({}, { __mode = "k" })

local Server, Subscription = {}, {}

local function number_of(server, name)
  local number = servers[server]
  if not number then
    error("bad argument #1 to 'redis:" .. name .. "': a Redis server expected (call it with a colon)", 3)
  end
  return number
end

local pipeline, subscribe = native.pipeline, native.subscribe

-- Commands whose arguments are all strings take the fast path `ask`. Commands with numbers, and
-- special commands, are checked by `look`.
local ask, look = inner.native.ask_redis, native.run
local function run(number, name, ...)
  local token = ask(number, name, ...)
  if token then return token end
  return look(number, name, ...)
end

local function check_name(name)
  if type(name) ~= "string" or #name > 64 or not name:find("^[%w_.%-]+$") then
    error("bad argument #1 to 'redis:call': the name of a command expected", 3)
  end
  return name:upper()
end

function Server:call(name, ...)
  local number = number_of(self, "call")
  return await_reply(run, number, check_name(name), ...)
end

function Server:pipeline(commands)
  return await_reply(pipeline, number_of(self, "pipeline"), false, commands)
end

function Server:transaction(commands)
  return await_reply(pipeline, number_of(self, "transaction"), true, commands)
end

local subscription_meta = {
  __index = Subscription,
  __newindex = function() error("a subscription's fields can't be set", 2) end,
  __metatable = false,
}

local function subscribed(number, ok, lease, guard)
  -- The error of a bad argument already has its position.
  if not ok then error(lease, lease:find("^%S+:%d+: ") and 0 or 3) end
  local subscription = setmetatable({}, subscription_meta)
  -- The lease is released when the script drops the subscription object.
  subscriptions[subscription] = { server = number, lease = lease, guard = guard }
  return subscription
end

function Server:subscribe(...)
  local number = number_of(self, "subscribe")
  return subscribed(number, inner.pcall(await_reply, subscribe, number, false, ...))
end

function Server:psubscribe(...)
  local number = number_of(self, "psubscribe")
  return subscribed(number, inner.pcall(await_reply, subscribe, number, true, ...))
end

local function subscription_of(self, name)
  local subscription = subscriptions[self]
  if not subscription then
    error("bad argument #1 to 'subscription:" .. name .. "': a subscription expected (call it with a colon)", 3)
  end
  return subscription
end

function Subscription:receive(timeout)
  local subscription = subscription_of(self, "receive")
  return await_reply(native.receive, subscription.server, subscription.lease, timeout)
end

function Subscription:messages()
  subscription_of(self, "messages")
  return function() return self:receive() end
end

function Subscription:close()
  drop_lease(subscription_of(self, "close").lease)
end

-- The maximum number of commands whose methods are cached; a method is created when its command is
-- first used.
local METHODS_MAX = 1000
local methods = 0

setmetatable(Server, {
  __index = function(_, name)
    if type(name) ~= "string" or #name > 64 or not name:find("^[%a][%w_]*$") then return nil end
    local command = name:upper()
    local function method(self, ...)
      return await_reply(run, number_of(self, name), command, ...)
    end
    if methods < METHODS_MAX then
      methods = methods + 1
      rawset(Server, name, method)
    end
    return method
  end,
})

local server_meta = {
  __index = Server,
  __newindex = function() error("a Redis server's fields can't be set", 2) end,
  __metatable = false,
}

return {
  redis = {
    connect = function(options)
      local server = setmetatable({}, server_meta)
      servers[server] = native.connect(options)
      return server
    end,
  },
}
