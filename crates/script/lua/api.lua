-- Creates `veche.publish`, `veche.push`, and `veche.api` with the methods of the HTTP API for back ends.
local inner = ...

local native, await_reply, publish_later = inner.native, inner.await_reply, inner.publish_later
local error, ipairs, setmetatable, tostring, type = error, ipairs, setmetatable, tostring, type

local command = native.command
local api = {}

-- The API's method `batch` is left out, because several coroutines can make calls concurrently.
for _, name in ipairs {
  "push", "publish", "broadcast", "disconnect", "subscribe", "unsubscribe", "refresh", "user_status", "block_user",
  "unblock_user", "revoke_token", "invalidate_user_tokens", "history", "history_remove", "presence", "presence_stats",
  "channels", "connections", "info",
} do
  api[name] = function(...) return await_reply(command, name, ...) end
end

-- The API's result has the field `taken` only if it is false.
local function published(result)
  result.taken = result.taken ~= false
  return result
end

function api.publish(...) return published(await_reply(command, "publish", ...)) end

-- Creates `publish` or `push`. Without options, the function waits only if the hub has no room.
local function publishes(at_once, with_options)
  return function(to, data, options, ...)
    if type(options) == "table" then return published(await_reply(with_options, to, data, options, ...)) end
    if at_once(to, data, options, nil, ...) then publish_later(at_once, to, data, options) end
  end
end

return {
  api = setmetatable(api, {
    __index = function(_, name) error("there is no method '" .. tostring(name) .. "' in veche.api", 2) end,
    __metatable = false,
  }),
  publish = publishes(native.publish, native.publish_with),
  push = publishes(native.push, native.push_with),
}
