-- Handlers of hook requests for clients of Centrifugo's protocol: `app.centrifuge`.
local inner = ...

local rule, type, rawget = inner.native.rule, type, rawget

-- Calls `handler`, and passes its results on as the decision on the hook request `number`.
function inner.rule(handler, number, ...)
  return rule(number, handler(...))
end

-- Returns a handler that calls the function of the requested method in `methods`.
function inner.by_method(methods)
  return function(client, method, data)
    local handler = rawget(methods, method)
    if type(handler) ~= "function" then return { error = { code = 104, message = "method not found" } } end
    return handler(client, data)
  end
end
