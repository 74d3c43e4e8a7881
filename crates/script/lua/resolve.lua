-- `veche.resolve`: looks up host names.
local inner = ...
local await_reply, native = inner.await_reply, inner.native

return function(host, options)
  return await_reply(native.resolve, host, options)
end
