-- Assertions for tests in Lua. The error of a failed assertion has the assertion's line.
local check = {}

local function show(value)
  if type(value) == "string" then return ("%q"):format(value) end
  return tostring(value)
end

-- Asserts that the values are equal; NaN equals NaN here.
function check.equal(actual, expected)
  if actual ~= expected and (actual == actual or expected == expected) then
    error("expected " .. show(expected) .. ", not " .. show(actual), 2)
  end
end

function check.is_true(value, words)
  if not value then error(words or "expected something true, not " .. show(value), 2) end
end

-- Asserts that a call fails with a plain string that has these words and names the file of the caller.
function check.fails(words, f, ...)
  local arguments, count = { ... }, select("#", ...)
  local ok, message = pcall(function()
    local result = f(unpack(arguments, 1, count))
    return result
  end)
  if ok then error("expected an error with " .. show(words), 2) end
  if type(message) ~= "string" then error("expected a string as the error, not a " .. type(message), 2) end
  if not message:find(words, 1, true) then error("expected " .. show(words) .. " in " .. show(message), 2) end
  if not message:find("^[%w/_]+%.lua:%d+: ") then error("no line of a script before " .. show(message), 2) end
  if message:find("traceback", 1, true) then error("a traceback in " .. show(message), 2) end
end

-- Values that no function expects as an argument, and that do no harm where a function accepts them.
check.strange = {
  true, false, 0, -1, 0.5, 1e300, -1e300, 0 / 0, 1 / 0, "", "\0", "\255", ("x"):rep(100000), {}, tostring,
  coroutine.create(tostring), setmetatable({}, { __index = function() error("touched") end }),
}

-- Calls a function with strange values at each of `places` arguments: the result has to be a value or an error with a
-- text.
function check.survives(places, f, ...)
  local good = { ... }
  for place = 1, places do
    for index = 0, #check.strange do
      local arguments = { unpack(good, 1, places) }
      arguments[place] = check.strange[index]
      local ok, message = pcall(f, unpack(arguments, 1, places))
      if not ok and type(message) ~= "string" then
        error("argument " .. place .. ": expected words, not a " .. type(message), 2)
      end
    end
  end
end

return check
