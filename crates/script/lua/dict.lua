-- `veche.dict` and `veche.counter`: Lua objects for dictionaries and counters, each of which Rust stores under a number.
local inner = ...

local native = inner.shared
local error, pairs, setmetatable = error, pairs, setmetatable

-- Creates a class of objects, and returns its constructor. A method is called with the object's number in place of the object.
local function class(kind, methods)
  local numbers = setmetatable({}, { __mode = "k" })
  local index = {}
  for name, method in pairs(methods) do
    index[name] = function(self, ...)
      local number = numbers[self]
      if not number then
        error("bad argument #1 to '" .. kind .. ":" .. name .. "': a " .. kind .. " expected (call it with a colon)", 2)
      end
      return method(number, ...)
    end
  end
  local meta = {
    __index = index,
    __newindex = function() error("a " .. kind .. "'s fields can't be set", 2) end,
    __metatable = false,
  }
  return function(number)
    local object = setmetatable({}, meta)
    numbers[object] = number
    return object
  end
end

inner.class = class

local function raise(ok, ...)
  if ok then return ... end
  error((...), 0)
end

local try_update = native.dict_methods.update
function native.dict_methods.update(...) return raise(try_update(...)) end

local new_dict, new_counter = class("dict", native.dict_methods), class("counter", native.counter_methods)

return {
  dict = function(name, options) return new_dict(native.dict(name, options)) end,
  counter = function(name) return new_counter(native.counter(name)) end,
}
