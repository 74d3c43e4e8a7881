-- `veche.table` as scripts see it.
local veche = require "veche"
local check = require "check"

local t = {}

local function visits(name)
  return veche.table(name, {
    key = "id:u32",
    columns = { user = "u32", location = "u32", visited_at = "i32", mark = "u8" },
    indexes = { by_user = { "user", "visited_at" }, by_location = { "location" } },
  })
end

local function ids(...)
  local found = {}
  for row in ... do found[#found + 1] = row.id end
  return table.concat(found, " ")
end

local function fails(expected, f, ...)
  local ok, words = pcall(f, ...)
  check.equal(false, ok)
  if not tostring(words):find(expected, 1, true) then error(tostring(words) .. " lacks " .. expected, 2) end
end

function t.rows_are_put_read_changed_and_deleted()
  local v = visits("one")
  check.equal(nil, v:insert { id = 1, user = 7, location = 3, visited_at = -5, mark = 5 })
  local row = v:get(1)
  check.equal("1 7 3 -5 5", table.concat({ row.id, row.user, row.location, row.visited_at, row.mark }, " "))
  check.equal(5, v:get(1, "mark"))
  local user, at = v:get(1, "user", "visited_at")
  check.equal("7 -5", user .. " " .. at)
  check.equal(nil, v:get(2))
  check.equal(nil, (v:get(2, "mark")))
  check.equal(nil, v:get(-1))
  check.equal('{"id":1,"location":3,"mark":5,"user":7,"visited_at":-5}', v:json(1))
  check.equal(nil, v:json(9))
  check.equal(true, v:has(1))
  check.equal(false, v:has(2))
  check.equal(false, v:add { id = 1, user = 0, location = 0, visited_at = 0, mark = 0 })
  check.equal(false, v:upsert { id = 1, user = 8, location = 3, visited_at = 6, mark = 4 })
  check.equal(true, v:upsert { id = 2, user = 8, location = 3, visited_at = 5, mark = 1 })
  check.equal("2 1", ids(v:scan("by_user", 8)))
  check.equal(true, v:update(2, { visited_at = 7 }))
  check.equal("1 2", ids(v:scan("by_user", 8)))
  check.equal(false, v:update(3, { visited_at = 7 }))
  check.equal(6, v:incr(1, "mark", 2))
  check.equal(7, v:incr(1, "mark"))
  check.equal(nil, v:incr(9, "mark"))
  check.equal(2, v:count())
  check.equal(true, v:delete(1))
  check.equal(false, v:delete(1))
  v:clear()
  check.equal(0, v:count())
end

function t.the_same_name_is_the_same_table()
  local v = visits("same")
  v:insert { id = 1, user = 1, location = 1, visited_at = 1, mark = 1 }
  check.equal(1, veche.table("same"):count())
  check.equal(true, visits("same") == v)
  fails("the table already exists with another schema: the column id of the existing table has the type u32", veche.table, "same", { key = "id:u64", columns = {} })
  fails("there is no such table", veche.table, "nobody")
end

function t.mistakes_name_table_column_value_and_limit()
  local v = visits("mistakes")
  local function row(changes)
    local row = { id = 1, user = 7, location = 3, visited_at = 5, mark = 5 }
    for name, value in pairs(changes) do row[name] = value end
    return row
  end
  fails("table mistakes: column mark: 256: out of range: must be from 0 to 255", v.insert, v, row { mark = 256 })
  fails("table mistakes: column mark: 1.5: expected a whole number (u8)", v.insert, v, row { mark = 1.5 })
  fails("table mistakes: column mark: \"x\": expected a whole number (u8)", v.insert, v, row { mark = "x" })
  fails("table mistakes: column mark: a table: expected a whole number", v.insert, v, row { mark = {} })
  fails("table mistakes: there is no column \"marks\"", v.insert, v, row { marks = 5 })
  fails("table mistakes: column mark: nothing: a value is missing", v.insert, v, row { mark = veche.null })
  fails("table mistakes: column user: nothing: a value is missing", v.insert, v, { id = 1, mark = 1, location = 1, visited_at = 1 })
  fails("bad argument #1 to 'table:insert': a table expected", v.insert, v, 5)
  v:insert(row {})
  fails("table mistakes: column id: a row with the key 1 already exists", v.insert, v, row {})
  fails("table mistakes: column id: 2: a row's key can't be changed", v.update, v, 1, { id = 2 })
  check.equal(true, v:update(1, { id = 1, mark = 4 }))
  fails("bad argument #1 to 'table:get': a key expected", v.get, v)
  fails("table mistakes: column id: \"x\": expected a whole number (u32)", v.get, v, "x")
  fails("there is no column \"nope\"", v.get, v, 1, "nope")
  fails("there is no index \"nope\"", v.scan, v, "nope")
  fails("from, to, above and below apply to the column after the given values", v.scan, v, "by_location", 1, { from = 1 })
  fails("the options are from, to", v.scan, v, "by_user", 1, { form = 1 })
  fails("a table of veche.table expected", v.get, {}, 1)
  fails("the table has no ttl", v.insert, v, row { id = 2 }, 5)
  fails("column mark: 4000000000: out of range", v.incr, v, 1, "mark", 4000000000 - 4)
  fails("can't be set", function() v.x = 1 end)
  for expected, schema in pairs {
    ["unknown type \"u7\""] = { key = "id:u32", columns = { a = "u7" } },
    ["column id occurs twice"] = { key = "id:u32", columns = { id = "u8" } },
    ["no column b"] = { key = "id:u32", columns = { a = "u8" }, indexes = { x = { "b" } } },
    ["a schema has no field \"kei\""] = { kei = "id:u32" },
    ["evict: there is no index"] = { key = "id:u32", evict = "x" },
  } do
    fails(expected, veche.table, "bad", schema)
  end
end

function t.mistakes_of_scans_name_the_argument()
  local v = visits("arguments")
  local index = "the name of an index or \"key\" expected"
  local list, limit = "columns: a list of names expected", "limit: a whole number of at least 0 expected"
  local columns = { "id" }
  for _, case in ipairs {
    { "#1 to 'table:scan': " .. index, "scan" },
    { "#1 to 'table:scan': " .. index, "scan", 5, 6 },
    { "#1 to 'table:scan': " .. index, "scan", { columns = columns } },
    { "#2 to 'table:scan': " .. limit, "scan", "key", { limit = -1 } },
    { "#3 to 'table:scan': " .. limit, "scan", "by_user", 1, { limit = -1 } },
    { "#4 to 'table:scan': reverse: true or false", "scan", "by_user", 1, 2, { reverse = 1 } },
    { "#3 to 'table:scan': the options are", "scan", "by_user", 1, { form = 1 } },
    { "#2 to 'table:scan': " .. list, "scan", "key", { columns = 5 } },
    { "#2 to 'table:scan': " .. list, "scan", "key", { columns = false } },
    { "#3 to 'table:scan': " .. list, "scan", "by_user", 1, { columns = "id" } },
    { "#3 to 'table:scan': " .. list, "scan", "by_user", 1, { columns = { "id", 5 } } },
    { "#1 to 'table:values': " .. index, "values", 5, { columns = columns } },
    { "#3 to 'table:values': " .. limit, "values", "by_user", 1, { columns = columns, limit = 0.5 } },
    { "#2 to 'table:values': " .. list, "values", "key", { columns = 5 } },
    { "#3 to 'table:values': " .. list, "values", "by_user", 1, { columns = { "id", {} } } },
    { "#1 to 'table:count': " .. index, "count", 5 },
    { "#3 to 'table:count': " .. limit, "count", "by_user", 1, { limit = {} } },
    { "#2 to 'table:aggregate': " .. index, "aggregate", "mark", 5 },
    { "#4 to 'table:aggregate': " .. limit, "aggregate", "mark", "by_user", 1, { limit = {} } },
  } do
    fails("bad argument " .. case[1], v[case[2]], v, unpack(case, 3))
  end
  for _, method in ipairs { "scan", "values", "count" } do
    fails("bad argument #1 to 'table:" .. method .. "': a table of veche.table", v[method], {}, "key", { columns = columns })
  end
  fails("bad argument #1 to 'table:aggregate': a table of veche.table", v.aggregate, {}, "mark", "key")
end

function t.values_of_all_types_come_back()
  local all = veche.table("all", {
    key = "name:string(10)",
    columns = {
      truth = "bool", i64 = "i64", u64 = "u64?", f32 = "f32", f64 = "f64", raw = "bytes", gender = "enum(m,f)", ["end"] = "u8?",
    },
  })
  local row = { name = "дядя", truth = true, i64 = "-9223372036854775808", f32 = 0.5, f64 = 0.1, raw = "\0\255", gender = "f" }
  all:insert(row)
  local back = all:get("дядя")
  for name, value in pairs(row) do check.equal(value, back[name]) end
  check.equal(nil, back.u64)
  all:update("дядя", { u64 = "18446744073709551615", i64 = 5 })
  check.equal("18446744073709551615", all:get("дядя", "u64"))
  check.equal(5, all:get("дядя", "i64"))
  all:update("дядя", { u64 = veche.null, ["end"] = 1 })
  check.equal(nil, (all:get("дядя", "u64")))
  for scanned in all:scan("key") do
    check.equal(1, scanned["end"])
    check.equal("\0\255", scanned.raw)
  end
  fails("at most 10 characters", all.insert, all, { name = "12345678901" })
end

function t.scans_go_both_ways_within_limits()
  local v = visits("scans")
  for id = 1, 1000 do
    v:insert { id = id, user = id % 2, location = id % 10, visited_at = id * 10, mark = id % 6 }
  end
  check.equal("9 19", ids(v:scan("by_location", 9, { limit = 2 })))
  check.equal("999 989", ids(v:scan("by_location", 9, { limit = 2, reverse = true })))
  check.equal("3 5", ids(v:scan("by_user", 1, { from = 30, to = 50 })))
  check.equal("5 3", ids(v:scan("by_user", 1, { from = 30, to = 50, reverse = true })))
  check.equal("5", ids(v:scan("by_user", 1, { above = 30, below = 70 })))
  check.equal("2 3", ids(v:scan("key", { from = 2, to = 3 })))
  check.equal("7", ids(v:scan("key", 7)))
  check.equal("", ids(v:scan("by_user", 5)))
  check.equal("", ids(v:scan("by_user", -1)))
  local count, last = 0, 0
  for row in v:scan("key") do
    count = count + 1
    check.equal(last + 1, row.id)
    last = row.id
  end
  check.equal(1000, count)
  for row in v:scan("by_user", 1, { from = 30, to = 30, columns = { "mark", "id" } }) do
    check.equal("3 3", row.mark .. " " .. row.id)
    check.equal(nil, row.user)
  end
  local told = {}
  for id, mark, user in v:values("by_user", 1, { from = 30, to = 50, columns = { "id", "mark", "user" } }) do
    told[#told + 1] = id .. " " .. mark .. " " .. user
  end
  check.equal("3 3 1, 5 5 1", table.concat(told, ", "))
  local all = 0
  for _ in v:values("key", { columns = { "id" } }) do all = all + 1 end
  check.equal(1000, all)
  fails("{ columns = … } expected", v.values, v, "by_user", 1)
  fails("must be id, the key", v.values, v, "by_user", 1, { columns = { "mark" } })
  fails("a table of veche.table expected", v.values, {}, "by_user", 1, { columns = { "mark" } })
  -- Each row is a Lua table of its own, also in scans within scans.
  local rows = {}
  for row in v:scan("by_location", 1, { limit = 50 }) do
    for other in v:scan("key", row.id) do check.equal(row.id, other.id) end
    rows[#rows + 1] = row
  end
  check.equal("1 491", rows[1].id .. " " .. rows[50].id)
  check.equal(500, v:count("by_user", 1))
  check.equal(2, v:count("by_user", 1, { from = 30, to = 50 }))
  local marks = v:aggregate("mark", "by_user", 1, { from = 30, to = 50 })
  check.equal("2 8 3 5 4", table.concat({ marks.count, marks.sum, marks.min, marks.max, marks.mean }, " "))
  local none = v:aggregate("mark", "by_user", 7)
  check.equal("0 0 nil", none.count .. " " .. none.sum .. " " .. tostring(none.mean))
end

function t.long_scans_let_others_run()
  local v = visits("long")
  for id = 1, 20000 do
    v:insert { id = id, user = 1, location = 1, visited_at = id, mark = 1 }
  end
  local turns, is_over = 0, false
  veche.spawn(function()
    while not is_over do
      turns = turns + 1
      veche.sleep(0)
    end
  end)
  local count = 0
  for row in v:scan("by_user", 1) do
    count = count + 1
    if row.id == 10000 then v:delete(15000) end
  end
  is_over = true
  check.equal(19999, count)
  check.equal(true, turns >= 4)
  check.equal(19999, v:aggregate("mark", "key").sum)
end

function t.a_function_updates_what_is_there()
  local v = visits("update")
  v:insert { id = 1, user = 1, location = 1, visited_at = 1, mark = 1 }
  check.equal(true, v:update(1, function(row) return { mark = row.mark + 1 } end))
  check.equal(2, v:get(1, "mark"))
  local calls = 0
  check.equal(true, v:update(1, function(row)
    calls = calls + 1
    if calls == 1 then v:update(1, { mark = 10 }) end
    return { mark = row.mark + 1 }
  end))
  check.equal("2 11", calls .. " " .. v:get(1, "mark"))
  check.equal(true, v:update(1, function() end))
  check.equal(false, v:update(2, function() error("not called") end))
  fails("oops", v.update, v, 1, function() error("oops") end)
  fails("too many concurrent changes of this row", v.update, v, 1, function(row)
    v:update(1, { visited_at = row.visited_at + 1 })
    return { mark = 1 }
  end)
end

function t.batches_are_whole_or_nothing()
  local v = visits("batch")
  local function row(id) return { id = id, user = 1, location = 1, visited_at = 1, mark = 1 } end
  v:batch(function(batch)
    for id = 1, 3 do batch:insert(row(id)) end
    batch:update(1, { mark = 5 })
    batch:delete(2)
  end)
  check.equal("1 3", ids(v:scan("key")))
  check.equal(5, v:get(1, "mark"))
  fails("there is no row with the key 9", v.batch, v, function(batch)
    batch:delete(1)
    batch:upsert(row(3))
    batch:insert(row(4))
    batch:update(9, { mark = 1 })
  end)
  check.equal("1 3", ids(v:scan("key")))
  local kept
  fails("stop", v.batch, v, function(batch)
    kept = batch
    batch:insert(row(7))
    error("stop")
  end)
  check.equal(false, v:has(7))
end

function t.rows_expire()
  local v = veche.table("ttl", { key = "id:u32", columns = { a = "u8" }, ttl = 60 })
  v:insert({ id = 1, a = 1 }, 0.005)
  v:insert { id = 2, a = 1 }
  check.equal(2, v:count())
  veche.sleep(0.01)
  check.equal(false, v:has(1))
  check.equal("2", ids(v:scan("key")))
  check.equal(1, v:count("key"))
  v:insert { id = 1, a = 2 }
  check.equal(2, v:get(1, "a"))
end

function t.a_full_table_is_an_error_or_evicts()
  local full = veche.table("full", { key = "id:u32", columns = { text = "string" }, bytes_max = 65536 })
  local text = ("x"):rep(1000)
  fails("table full: the table is full", function()
    for id = 1, 1000 do full:insert { id = id, text = text } end
  end)
  check.equal(true, full:count() > 30)
  local ring = veche.table("ring", { key = "id:u32", columns = { text = "string" }, bytes_max = 65536, evict = "key" })
  for id = 1, 1000 do ring:insert { id = id, text = text } end
  local info = ring:info()
  check.equal(1000, info.rows + info.evicted)
  check.equal(true, info.bytes <= 70000 and info.columns.text > 30000)
  check.equal(true, ring:has(1000))
end

function t.changes_are_told()
  local v = visits("changes")
  local got = {}
  local task = veche.spawn(function()
    for change in v:changes() do
      got[#got + 1] = change.kind .. " " .. tostring(change.key) .. " " .. tostring(change.row and change.row.mark)
      if change.kind == "clear" then return end
    end
  end)
  veche.sleep(0)
  v:insert { id = 1, user = 1, location = 1, visited_at = 1, mark = 1 }
  v:update(1, { mark = 2 })
  veche.sleep(0)
  v:delete(1)
  v:clear()
  task:join()
  check.equal("insert 1 1, update 1 2, delete 1 nil, clear nil nil", table.concat(got, ", "))
  local slow = v:changes { capacity = 1 }
  for id = 1, 3 do v:insert { id = id, user = 1, location = 1, visited_at = 1, mark = 1 } end
  check.equal("insert 1", (function() local c = slow() return c.kind .. " " .. c.key end)())
  check.equal("missed 2", (function() local c = slow() return c.kind .. " " .. c.count end)())
end

function t.tables_are_saved_and_loaded()
  local v = visits("files")
  for id = 1, 3000 do v:insert { id = id, user = id % 7, location = 1, visited_at = id, mark = 1 } end
  check.equal(3000, v:save("visits.snapshot"))
  v:update(5, { mark = 9 })
  v:delete(6)
  check.equal(3000, v:load("visits.snapshot"))
  check.equal("1 true", v:get(5, "mark") .. " " .. tostring(v:has(6)))
  check.equal(428, v:count("by_user", 5))
  local other = veche.table("files 2", { key = "id:u32", columns = { a = "u8" } })
  fails("table files 2: ", other.load, other, "visits.snapshot")
  fails("table files 2: ", other.load_json, other, "nothing.json")
  fails("conflict: \"error\", \"replace\" or \"skip\" expected", other.load_json, other, "x", { conflict = "x" })
  fails("the options are strings (files", other.load_csv, other, "x", { list = "x" })
  fails("a path of at most 4096 bytes expected", other.load_csv, other)
  check.equal(0, other:count())
end

function t.nothing_is_kept_of_scans()
  local v = visits("garbage")
  for id = 1, 100 do v:insert { id = id, user = 1, location = 1, visited_at = id, mark = 1 } end
  local function run()
    for _ = 1, 200 do
      for _ in v:scan("by_user", 1) do end
      for _ in v:scan("by_user", 1, { columns = { "mark" } }) do break end
    end
    collectgarbage()
    collectgarbage()
    return collectgarbage("count")
  end
  run()
  local before = run()
  -- In KiB. If each row had left a Lua table, the tables would use about 3000.
  check.equal(true, run() - before < 300)
end

return t
