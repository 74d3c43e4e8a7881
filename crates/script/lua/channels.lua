-- `veche.history`, `veche.presence` and other queries of channels.
local inner = ...
local await_reply, native = inner.await_reply, inner.native

return {
  history = function(channel, options)
    local page = await_reply(native.history, channel, options)
    return page.publications, page.position
  end,
  presence = function(channel) return await_reply(native.presence, channel) end,
  presence_stats = function(channel) return await_reply(native.presence_stats, channel) end,
  user_status = function(user) return await_reply(native.user_status, user) end,
}
