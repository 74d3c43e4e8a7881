-- `veche.table`: the parts that are simpler in Lua than in Rust. Rust implements the methods on the hot path of rows.
local inner = ...

local native, can_wait, cannot_wait = inner.native.table, inner.can_wait, inner.cannot_wait
local pcall, now, give_way, is_long = inner.pcall, inner.native.now, inner.give_way, inner.native.is_long
local try_park, leave, sleep = inner.try_park, inner.native.queue.leave, inner.native.sleep
local null, base64 = inner.native.modules.null, inner.native.modules.base64
local error, type, select, pairs, setmetatable, unpack, concat =
  error, type, select, pairs, setmetatable, unpack, table.concat
local scan, values, more, sum = native.scan, native.values, native.more, native.sum
local see, update_seen, note = native.see, native.update_seen, native.note
local watch, next, decode = native.watch, native.next, inner.native.modules.json.decode

-- `objects` maps the number of a table to the only Lua object of the table, and `known` maps the number to the table's schema.
local objects, known = {}, {}

local function number_of(self, method, level)
  local number = native.number(self)
  if number then return number end
  error("bad argument #1 to 'table:" .. method .. "': a table of veche.table expected (call it with a colon)", level or 3)
end

local methods = {}
for _, name in pairs { "get", "has", "json", "insert", "add", "upsert", "incr", "delete" } do
  methods[name] = native[name]
end

---------------------------------------------------------------------------------------------------- changes

local update = native.update
local UPDATES_MAX = 1000

function methods.update(self, key, changes)
  if type(changes) ~= "function" then return update(self, key, changes) end
  for _ = 1, UPDATES_MAX do
    local row, seen = see(self, key)
    if not row then return false end
    local result = changes(row)
    if result == nil then return true end
    local done = update_seen(self, key, result, seen)
    if done ~= nil then return done end
  end
  error("table:update: too many concurrent changes of this row", 2)
end

local batch_methods, batches = {}, setmetatable({}, { __mode = "k" })
for _, kind in pairs { "insert", "upsert", "update", "delete" } do
  batch_methods[kind] = function(self, ...)
    local batch = batches[self]
    if not batch then error("bad argument #1 to 'batch:" .. kind .. "': an open batch expected (call it with a colon)", 2) end
    return note(batch[1], batch[2], kind, ...)
  end
end
local batch_meta = { __index = batch_methods, __metatable = false }

function methods.batch(self, f)
  if type(f) ~= "function" then error("bad argument #1 to 'table:batch': a function expected", 2) end
  local noted = note(self)
  local batch = setmetatable({}, batch_meta)
  batches[batch] = { self, noted }
  f(batch)
  batches[batch] = nil
  return note(self, noted)
end

function methods.clear(self) return native.clear(number_of(self, "clear")) end

---------------------------------------------------------------------------------------------------- scans

-- Finished scans, for reuse.
local pool, POOL_MAX = {}, 16

-- The maximum number of cached functions that build rows or return values, one for each list of
-- columns.
local MAKERS_MAX = 100

local function makers(object, names, as_values)
  local all = { width = #names, unpack(names) }
  all.make, all.places = native.compile(names, as_values), native.columns(object, names, as_values)
  return { all = all, as_values = as_values, some = {}, count = 0, lists = setmetatable({}, { __mode = "k" }) }
end

-- Returns whether a list of columns still contains the `names` for which its builder was created.
local function is_same(columns, names)
  local count = #names
  if #columns ~= count then return false end
  for i = 1, count do
    if columns[i] ~= names[i] then return false end
  end
  return true
end

-- Returns the builder of rows with these columns. It lists the column names, and has the fields `make`
-- (a function), `places` (the columns' indexes) and `width` (their count). Builders are cached, because
-- most lists are used repeatedly. `number` is the position of the list among the method's arguments.
local function maker_of(object, about, columns, number)
  if not columns then return about.all end
  local known = about.lists[columns]
  if known and is_same(columns, known) then return known end
  local places = native.columns(object, columns, about.as_values, number)
  known = about.some[places]
  if not known then
    known = { width = #columns, unpack(columns) }
    known.make, known.places = native.compile(columns, about.as_values), places
    if about.count == MAKERS_MAX then about.some, about.count = {}, 0 end
    about.some[places], about.count = known, about.count + 1
  end
  about.lists[columns] = known
  return known
end

-- The maximum number of rows after which a loop checks whether other coroutines have to run. The
-- loop starts with 1 row, and doubles the number as long as the rows are processed quickly.
local CHECKED_ROWS_MAX = 32

-- An open scan is a Lua table. Its list part contains the data of rows, its other fields the state.
-- A scan allocates nothing else: no closure, and no rows except those that it returns.
local function refill(state)
  local cursor = state.cursor
  while cursor do
    local count, has_more = more(state.of, state, cursor)
    if not has_more then
      cursor = nil
      state.cursor = nil
    end
    state.count = count
    if count > 0 then
      state.at, state.stop = 1, count < state.step and count or state.step
      return state.make(state, 0)
    end
    -- The slice is empty, for example because all its rows have expired. Before the next slice is read, other coroutines
    -- run if this one has run for long.
    give_way(2)
  end
  if state.of then
    state.of, state.count, state.at, state.stop = nil, 0, 0, 0
    if #pool < POOL_MAX then pool[#pool + 1] = state end
  end
end

-- Returns the next row of a scan; first lets other coroutines run if the last rows took long.
local function pause(state)
  local at, count, rows = state.at, state.count, state.step
  if is_long() then
    give_way(2)
    rows = 1
  elseif rows < CHECKED_ROWS_MAX then
    rows = rows * 2
  end
  state.step = rows
  if at == count then return refill(state) end
  local stop = at + rows
  state.at, state.stop = at + 1, stop < count and stop or count
  return state.make(state, at * state.width)
end

local function step(state)
  local at = state.at
  if at < state.stop then
    state.at = at + 1
    return state.make(state, at * state.width)
  end
  return pause(state)
end

-- Returns two values: the last argument, or false if there are fewer than two; and the number of arguments.
local function last_of(...)
  local count = select("#", ...)
  return count > 1 and select(count, ...), count
end

-- Starts a scan of the table `self` with the native function `scan`, and returns its iterator.
local function begin(scan, self, maker, ...)
  local state = pool[#pool]
  if state then pool[#pool] = nil else state = {} end
  local count, cursor = scan(self, state, maker.places, ...)
  state.make, state.width = maker.make, maker.width
  state.of, state.count, state.cursor, state.at = self, count, cursor, 0
  state.stop, state.step = count < 1 and count or 1, 1
  return step, state
end

local function about_of(self, method)
  local about = known[native.number(self)]
  if about then return about end
  number_of(self, method, 4)
end

function methods.scan(self, ...)
  local options, count = last_of(...)
  local columns = type(options) == "table" and options.columns
  return begin(scan, self, maker_of(self, about_of(self, "scan").rows, columns, count), ...)
end

function methods.values(self, ...)
  local about, options, count = about_of(self, "values"), last_of(...)
  local columns = type(options) == "table" and options.columns
  if not columns then error("bad argument to 'table:values': { columns = … } expected", 2) end
  if type(columns) == "table" and columns[1] ~= about.key then
    error("bad argument to 'table:values': the first column must be " .. about.key .. ", the key", 2)
  end
  return begin(values, self, maker_of(self, about.values, columns, count), ...)
end

-- Continues the native `sum`, which processes a part of the rows in each call, until it is
-- complete.
local function whole_sum(self, done, ...)
  if done == true then return ... end
  give_way(3)
  return whole_sum(self, sum(self, done))
end

function methods.count(self, ...)
  if select("#", ...) == 0 then
    local _, rows = sum(self)
    return rows
  end
  local rows = whole_sum(self, sum(self, nil, ...))
  return rows
end

function methods.aggregate(self, column, ...)
  if type(column) ~= "string" then error("bad argument #1 to 'table:aggregate': the name of a column expected", 2) end
  local _, count, total, least, most, mean = whole_sum(self, sum(self, column, ...))
  return { count = count, sum = total, min = least, max = most, mean = mean }
end

---------------------------------------------------------------------------------------------------- changes of others

-- Decodes the row and the key of a change in place, since `bytes` values arrive as Base64.
local function decoded(about, change)
  local row = change.row
  if row then
    for name, kind in pairs(about.kinds) do
      local value = row[name]
      if value == null then
        row[name] = nil
      elseif kind == "bytes" then
        row[name] = base64.decode(value)
      end
    end
  end
  if about.kinds[about.key] == "bytes" and change.key then change.key = base64.decode(change.key) end
  return change
end

function methods.changes(self, options)
  local number = number_of(self, "changes")
  if options ~= nil and type(options) ~= "table" then
    error("bad argument #1 to 'table:changes': { capacity = … } expected", 2)
  end
  for name in pairs(options or {}) do
    if name ~= "capacity" then error("bad argument #1 to 'table:changes': the only option is capacity", 2) end
  end
  local watch, about = watch(self, options and options.capacity), known[number]
  return function()
    give_way(2)
    local change, token = next(self, watch, false)
    while not change do
      if not can_wait() then error(cannot_wait(), 2) end
      change, token = next(self, watch, true)
      if not change then
        local ok, why = try_park(token)
        leave(token, ok)
        if not ok then error(why, 2) end
        change = next(self, watch, false)
      end
    end
    return decoded(about, decode(change))
  end
end

---------------------------------------------------------------------------------------------------- files

local PROGRESS_S, PAUSE_MAX_S = 0.25, 0.02

-- Waits for a job, polling less and less often.
local function finish(number, job, progress)
  local pause, told = 0.0005, now()
  while true do
    local done, rows, bytes, total = native.job(number, job)
    if done then return rows end
    if progress and now() - told >= PROGRESS_S then
      told = now()
      local ok, why = pcall(progress, rows, bytes, total)
      if not ok then
        native.cancel(job)
        error(why, 0)
      end
    end
    local ok, why = try_park(sleep(pause))
    if not ok then
      native.cancel(job)
      error(why, 3)
    end
    if pause < PAUSE_MAX_S then pause = pause * 2 end
  end
end

for _, method in pairs { "save", "load", "load_json", "load_ndjson", "load_csv" } do
  methods[method] = function(self, path, options)
    local number = number_of(self, method)
    if not can_wait() then error(cannot_wait(), 2) end
    local job = native.begin(number, method, path, options)
    return finish(number, job, type(options) == "table" and options.progress)
  end
end

function methods.info(self) return native.info(number_of(self, "info")) end

---------------------------------------------------------------------------------------------------- objects

local meta = native.meta
meta.__index = methods
meta.__metatable = false
function meta.__newindex() error("a table's fields can't be set: use insert to add rows", 2) end

return function(...)
  local number, names, kinds = native.open(...)
  local object = objects[number]
  if not object then
    object = native.new(number, names)
    objects[number] = object
    known[number] = {
      rows = makers(object, names, false), values = makers(object, names, true), key = names[1], kinds = kinds,
    }
  end
  return object
end
