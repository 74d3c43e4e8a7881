-- Handlers of what clients of Centrifugo's protocol ask: `app.centrifuge`.
local inner = ...

local rule, type, rawget = inner.native.rule, type, rawget

-- Has a handler decide on the question with that number.
function inner.rule(handler, number, ...)
  return rule(number, handler(...))
end

-- The handler that a table of methods makes.
function inner.by_method(methods)
  return function(client, method, data)
    local handler = rawget(methods, method)
    if type(handler) ~= "function" then return { error = { code = 104, message = "method not found" } } end
    return handler(client, data)
  end
end
