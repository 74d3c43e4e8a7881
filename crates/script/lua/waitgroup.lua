-- `veche.waitgroup`: waits until all announced operations are done.
local inner = ...

local new_line, give_way = inner.new_line, inner.give_way
local error, setmetatable, type = error, setmetatable, type

local COUNT_MAX = 2 ^ 53

local Group = {}
Group.__index = Group
Group.__metatable = false

local function check(self, name)
  if type(self) ~= "table" or self.line == nil then
    error("bad argument #1 to 'waitgroup:" .. name .. "': a waitgroup expected (call it with a colon)", 3)
  end
end

local function change(self, by)
  local count = self.count + by
  if count < 0 then error("the waitgroup's counter became negative: more done than added", 3) end
  if count > COUNT_MAX then error("the waitgroup's counter would exceed 2^53", 3) end
  self.count = count
  if count == 0 then
    while self.line.first do self.line:serve() end
  end
end

function Group:add(count)
  check(self, "add")
  if count == nil then count = 1 end
  if type(count) ~= "number" or not (count >= -COUNT_MAX and count <= COUNT_MAX and count % 1 == 0) then
    error("bad argument #1 to 'waitgroup:add': a whole number expected", 2)
  end
  change(self, count)
end

function Group:done()
  check(self, "done")
  change(self, -1)
end

function Group:wait()
  check(self, "wait")
  give_way(2)
  if self.count == 0 then return end
  local ok, why = self.line:wait({}, 3)
  if not ok then error(why, 2) end
end

return function() return setmetatable({ count = 0, line = new_line() }, Group) end
