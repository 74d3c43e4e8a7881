-- Tests `veche.mysql` with a real server. Each function of `t` is a test that a request runs by name.
local veche = require "veche"
local check, suite = require "check", require "suite"
local null = veche.null

local db = veche.mysql.connect(veche.config.url)
local t = {}

local function try(f, ...)
  local ok, why = pcall(f, ...)
  check.equal(ok, false)
  return why
end

local function fresh(name, columns)
  db:execute("drop table if exists " .. name)
  db:execute("create table " .. name .. " (" .. columns .. ") engine=innodb default charset=utf8mb4")
end

function t.rows_are_tables_by_name()
  fresh("people", "id int primary key auto_increment, name varchar(50), age int")
  local made = db:execute("insert into people (name, age) values (?, ?), (?, ?)", "Ann", 30, "Bob", null)
  check.equal(made.affected, 2)
  check.equal(made.last_id, 1)
  local rows = db:query("select id, name, age from people order by id")
  check.equal(#rows, 2)
  check.equal(rows[1].name, "Ann")
  check.equal(rows[1].age, 30)
  check.equal(rows[2].age == null, true)
  check.equal(null == veche.json.null, true)
  check.equal(db:row("select name from people where id = ?", 2).name, "Bob")
  check.equal(db:row("select name from people where id = 99"), nil)
  check.equal(db:value("select name from people order by id"), "Ann")
  check.equal(db:value("select age from people where id = 2") == null, true)
  check.equal(db:value("select age from people where id = 99"), nil)
  check.equal(veche.json.encode(db:query("select id from people where id > 99")), "[]")
  check.equal(db:execute("update people set age = age + 1 where id < ?", 99).affected, 1)
  check.equal(db:execute("delete from people").affected, 2)
  check.equal(db:execute("delete from people").last_id, nil)
  -- `query` accepts a statement that returns no rows, and `execute` one that changes none.
  check.equal(#db:query("delete from people"), 0)
  check.equal(db:execute("select 1").affected, 0)
end

function t.changes_return_rows()
  fresh("returned", "id int primary key auto_increment, name varchar(50)")
  local made = db:execute("insert into returned (name) values (?), (?) returning id, name", "Ann", "Bob")
  check.equal(made.affected, 2)
  check.equal(made.last_id, nil)
  check.equal(#made.rows, 2)
  check.equal(made.rows[2].id, 2)
  check.equal(made.rows[2].name, "Bob")
  check.equal(db:value("select count(*) from returned"), 2)
  check.equal(db:execute("delete from returned where id = 1 returning id").rows[1].id, 1)
  check.equal(db:execute("insert into returned (name) values ('Eve')").rows, nil)
end

function t.types()
  local row = db:row([[select 1 as one, -1 as minus, 9007199254740992 as exact, 9007199254740993 as large,
    cast(18446744073709551615 as unsigned) as largest, -9223372036854775808 as least, 1.10 as decimal_,
    0.1e0 as double_, cast('2026-02-03' as date) as day, cast('2026-02-03 04:05:06' as datetime) as at,
    cast('2026-02-03 04:05:06.070809' as datetime(6)) as exactly, cast('2026-02-03 04:05:06.5' as datetime(1)) as tenth,
    cast('-100:01:02' as time) as long_, cast('01:02:03.5' as time(3)) as short_, true as yes, null as nothing,
    x'00ff00' as bytes, '' as empty]])
  for name, value in pairs {
    one = 1, minus = -1, exact = 9007199254740992, large = "9007199254740993", largest = "18446744073709551615",
    least = "-9223372036854775808", decimal_ = "1.10", double_ = 0.1, day = "2026-02-03", at = "2026-02-03 04:05:06",
    exactly = "2026-02-03 04:05:06.070809", tenth = "2026-02-03 04:05:06.5", long_ = "-100:01:02",
    short_ = "01:02:03.500", yes = 1, nothing = null, bytes = "\0\255\0", empty = "",
  } do
    if row[name] ~= value then error(name .. ": " .. tostring(row[name]) .. " instead of " .. tostring(value)) end
  end
  fresh("kinds", "f float, b bit(12), j json, e enum('x','y'), z mediumblob, ts timestamp(3) null, y year")
  db:execute("insert into kinds values (?, b'101010101010', ?, ?, ?, ?, ?)",
    0.1, '{"a": [1]}', "y", ("\0\1\2"):rep(50000), "2026-02-03 04:05:06.789", 2026)
  row = db:row("select * from kinds")
  check.equal(row.f, 0.1)
  check.equal(row.b, "\10\170")
  check.equal(veche.json.decode(row.j).a[1], 1)
  check.equal(row.e, "y")
  check.equal(row.z, ("\0\1\2"):rep(50000))
  check.equal(row.ts, "2026-02-03 04:05:06.789")
  check.equal(row.y, 2026)
end

function t.whatever_goes_in_comes_out()
  fresh("things", "id int primary key auto_increment, v longblob, s longtext")
  for _, text in ipairs {
    "", " ", "it's", '"', "\\", "\\'", "'; drop table things; -- ", "x' or '1'='1", "a\0b", "\r\n\t", "вече 🔔 ¿",
    "?", "${x}", ":name", "%", ("x"):rep(3000000),
  } do
    local id = db:execute("insert into things (v, s) values (?, ?)", text, text).last_id
    local row = db:row("select v, s, char_length(s) as n from things where id = ?", id)
    check.equal(row.v == text, true)
    check.equal(row.s == text, true)
    check.equal(db:value("select count(*) from things where v = ? and s = ?", text, text) >= 1, true)
  end
  check.equal(db:value("select char_length(?)", "вече 🔔"), 6)
  check.equal(db:value("select @@character_set_client"), "utf8mb4")
  check.equal(db:value("select @@character_set_results"), "utf8mb4")
  check.equal(#db:query("select id from things where id = ?", "1 or 1=1"), 1)
  check.equal(#db:query("select id from things where id = ?", "' or ''='"), 0)
  local all = {}
  for byte = 0, 255 do all[#all + 1] = string.char(byte) end
  check.equal(db:value("select cast(? as binary)", table.concat(all)) == table.concat(all), true)
  for _, value in ipairs { 0, -1, 0.5, 1e300, 2 ^ 53, -2 ^ 53, 5e-324 } do
    check.equal(db:value("select ?", value), value)
  end
  check.equal(db:value("select ? is null", null), 1)
  check.equal(db:value("select ?", true), 1)
  check.equal(db:value("select ? + ?", false, true), 1)
  -- A call executes a single statement: two are a syntax error (1064).
  check.equal(try(db.query, db, "select 1; select 2"):find("1064", 1, true) ~= nil, true)
end

function t.errors_have_the_codes_of_the_server()
  fresh("once", "id int primary key")
  db:execute("insert into once values (1)")
  local why = try(db.execute, db, "insert into once values (?)", 1)
  check.equal(why:match("mysql: 1062 %(23000%): Duplicate entry '1'") ~= nil, true)
  check.equal(veche.mysql.code(why), 1062)
  check.equal(veche.mysql.code(try(db.query, db, "select nonsense")), 1054)
  check.equal(veche.mysql.code(try(db.query, db, "no sql")), 1064)
  check.equal(veche.mysql.code("app.lua:7: something"), nil)
  check.equal(veche.mysql.code(nil), nil)
  -- The message begins with "mysql:", and the raised error has the position in the script before it.
  check.equal(why:match("^mysql: ") ~= nil, true)
  local ok, at = pcall(function()
    local rows = db:query("select nonsense")
    return rows
  end)
  check.equal(ok, false)
  check.equal(at:match("^[%w_./]*app.lua:%d+: mysql: 1054") ~= nil, true)
  check.fails("mysql: the statement has 2 placeholders, but 1 values were given", db.query, db, "select ?, ?", 1)
  check.fails("mysql: the statement has 0 placeholders, but 1 values were given", db.query, db, "select 1", 1)
  check.fails("two columns of the result are named \"a\"", db.query, db, "select 1 as a, 2 as a")
  -- The connection still works after statements have failed.
  check.equal(db:value("select 7"), 7)
end

function t.bad_arguments()
  for _, name in ipairs { "query", "row", "value", "execute" } do
    local first = "bad argument #1 to '" .. name .. "': "
    check.fails(first .. "a string expected", db[name], db)
    check.fails(first .. "a string expected, not number", db[name], db, 7)
    check.fails(first .. "a string expected, not table", db[name], db, {})
    check.fails(first .. "expected a statement", db[name], db, "")
    check.fails(first .. "expected a statement", db[name], db, "select\0 1")
    check.fails(first .. "a statement must be UTF-8", db[name], db, "select '\255'")
    local second = "bad argument #2 to '" .. name .. "': "
    local what = second .. "a string, a number, a boolean or veche.null expected, not "
    check.fails(what .. "table", db[name], db, "select ?", {})
    check.fails(what .. "function", db[name], db, "select ?", print)
    check.fails(what .. "thread", db[name], db, "select ?", coroutine.create(print))
    check.fails(second .. "nil is not a value: use veche.null for NULL", db[name], db, "select ?", nil)
    check.fails(second .. "NaN and infinity", db[name], db, "select ?", 0 / 0)
    check.fails(second .. "NaN and infinity", db[name], db, "select ?", 1 / 0)
    check.fails("bad argument #3 to '" .. name .. "'", db[name], db, "select ?, ?", 1, {})
    check.fails("bad argument #1 to '" .. name .. "': a database expected (call it with a colon)", db[name], "select 1")
    check.fails("a database expected", db[name], nil, "select 1")
    check.fails("a database expected", db[name], setmetatable({}, {}), "select 1")
    check.fails("can't wait here", table.sort, { 1, 2 }, function() db[name](db, "select 1") end)
  end
  check.fails("a database expected", db.transaction, {}, print)
  check.fails("bad argument #1 to 'transaction': a function expected", db.transaction, db)
  check.fails("bad argument #1 to 'transaction': a function expected", db.transaction, db, 7)
  check.fails("a database's fields can't be set", function() db.x = 1 end)
  local connect = veche.mysql.connect
  local first = "bad argument #1 to 'mysql.connect': "
  check.fails(first .. "a URL or a table of options expected", connect)
  check.fails(first .. "a URL or a table of options expected", connect, 7)
  for _, url in ipairs { "", "localhost", "http://x", "postgres://x/y", "mysql:/x", "mysql://\255", "mysql://%ff/x" } do
    check.fails(first .. "it is neither a URL such as mysql://user:password@host/name", connect, url)
  end
  check.fails("bad option \"pol\" to 'mysql.connect': the options are host, port", connect, { pol = 7 })
  check.fails("bad option \"pol\" to 'mysql.connect'", connect, "mysql://x/y?pol=7")
  check.fails("bad option pool to 'mysql.connect': a whole number from 1 to 10000 expected", connect, { pool = 0 })
  check.fails("bad option pool to", connect, { pool = 1.5 })
  check.fails("bad option pool to", connect, { pool = "many" })
  check.fails("bad option pool to", connect, "mysql://x/y?pool=-1")
  check.fails("bad option port to", connect, "mysql://x:70000/y")
  check.fails("bad option port to", connect, { port = 0 })
  check.fails("bad option host to", connect, { host = "a b" })
  check.fails("bad option host to", connect, { host = "" })
  check.fails("bad option host to 'mysql.connect': at most 4096 bytes without NUL", connect, { host = "a\0" })
  check.fails("bad option host to", connect, { host = {} })
  check.fails("bad option user to 'mysql.connect': a string expected", connect, { user = 7 })
  check.fails("bad option timeout to 'mysql.connect': a number of seconds from 0.001 to 86400 expected", connect, { timeout = 0 })
  check.fails("bad option timeout to", connect, { timeout = 0 / 0 })
  check.fails("bad option wait_timeout to", connect, { wait_timeout = 86401 })
  check.fails("bad option tls to", connect, { tls = 7 })
  check.fails("bad option tls to", connect, { tls = {} })
  check.fails("bad option \"[1]\" to", connect, { "mysql://x" })
end

function t.urls()
  local port = veche.config.url:match(":(%d+)/")
  for _, options in ipairs {
    "mysql://root@127.0.0.1:" .. port .. "/test",
    "mysql://root@localhost:" .. port .. "/test?pool=3&timeout=5",
    "mysql://us%65r:p%40ss%2F%3F@127.0.0.1:" .. port .. "/test",
    { host = "127.0.0.1", port = port + 0, user = "user", password = "p@ss/?", database = "test" },
  } do
    db:execute("create or replace user user@'%' identified by 'p@ss/?'")
    db:execute("grant all on test.* to user@'%'")
    check.equal(veche.mysql.connect(options):value("select database()"), "test")
  end
  local why = try(function()
    return veche.mysql.connect("mysql://user:wrong@127.0.0.1:" .. port .. "/test"):value("select 1")
  end)
  check.equal(veche.mysql.code(why), 1045)
  check.equal(why:find("wrong", 1, true), nil)
  local plain = veche.mysql.connect("mysqls://root@127.0.0.1:" .. port .. "/test")
  check.equal(try(plain.value, plain, "select 1"):find("SSL", 1, true) ~= nil, true)
end

function t.results_have_limits()
  local url = veche.config.url
  local few = veche.mysql.connect(url .. "&rows_max=10")
  check.equal(#few:query("select seq from seq_1_to_10"), 10)
  check.fails("mysql: the result has more than 10 rows (rows_max)", few.query, few, "select seq from seq_1_to_1000000")
  check.equal(few:row("select seq from seq_1_to_1000").seq, 1)
  local small = veche.mysql.connect(url .. "&bytes_max=1000")
  check.fails("mysql: the result has more than 1000 bytes (bytes_max)", small.value, small, "select repeat('x', 1000)")
  check.equal(#small:value("select repeat('x', 900)"), 900)
  check.equal(#db:query("select seq from seq_1_to_10000"), 10000)
  check.fails("more than 10000 rows", db.query, db, "select seq from seq_1_to_10001")
end

function t.time_is_limited()
  local quick = veche.mysql.connect(veche.config.url .. "&timeout=1&pool=2&wait_timeout=0.2")
  local began = veche.time.monotonic()
  check.fails("mysql: no result within 1s", quick.query, quick, "select sleep(20)")
  check.equal(veche.time.monotonic() - began < 5, true)
  check.equal(quick:value("select 7"), 7)
  -- After the time limit the database, too, stops executing the statement.
  local left
  for _ = 1, 100 do
    left = db:value("select count(*) from information_schema.processlist where info like 'select sleep(20)%'")
    if left == 0 then break end
    veche.sleep(0.02)
  end
  check.equal(left, 0)
  local tasks = {}
  for i = 1, 3 do tasks[i] = veche.spawn(pcall, quick.value, quick, "select sleep(0.4)") end
  local ended, why = { 0, 0 }, nil
  for i = 1, 3 do
    local ok, result = tasks[i]:join()
    if ok then ended[1] = ended[1] + 1 else ended[2], why = ended[2] + 1, result end
  end
  check.equal(ended[1], 2)
  local said = 'mysql: no free connection within 200ms: all 2 connections of the pool "127.0.0.1:%d+/test" are in use: '
    .. '"select sleep%(0.4%)" for 0.%d s and 1 more like it %[pool_full%]$'
  check.is_true(why:find(said), why)
end

function t.a_full_pool_says_what_it_is_in_use_for()
  local options = veche.config.url .. "&pool=1&wait_timeout=0.2&pool_name="
  local a, b = veche.mysql.connect(options .. "a"), veche.mysql.connect(options .. "b")
  local task = veche.spawn(a.value, a, "select  sleep(0.5),\n 'a secret'")
  veche.sleep(0.1)
  -- A database with a separate pool does not wait for the pool of another one.
  check.equal(b:value("select 7"), 7)
  check.fails('all 1 connections of the pool "a" are in use: "select sleep(0.5), ?" for 0.', a.value, a, "select 7")
  task:join()
  a:transaction(function(tx)
    local now = veche.spawn(tx.value, tx, "select sleep(0.4)")
    veche.sleep(0.05)
    check.fails('"select sleep(0.4)" in a transaction for 0.', a.value, a, "select 7")
    now:join()
    check.fails('a transaction that waits for its script after "select sleep(0.4)" for ', a.value, a, "select 7")
  end)
  check.equal(a:value("select 7"), 7)
  check.fails("bad option pool_name to 'mysql.connect': 1 to 64 bytes", veche.mysql.connect, { pool_name = "a\n" })
  check.fails("bad option pool_name to", veche.mysql.connect, { pool_name = ("x"):rep(65) })
  check.fails("bad option pool_name to", veche.mysql.connect, { pool_name = 7 })
end

function t.errors_have_kinds()
  local function about(why)
    check.equal(type(why), "string")
    return veche.error(why)
  end
  fresh("kinds_of", "id int primary key")
  db:execute("insert into kinds_of values (1), (2)")
  local what = about(try(db.execute, db, "insert into kinds_of values (1)"))
  check.equal(what.kind, "refused")
  check.equal(what.code, 1062)
  check.equal(what.retryable, false)
  check.equal(what.message:find("mysql: 1062 (23000): Duplicate entry '1' for key 'PRIMARY'", 1, true) ~= nil, true)
  check.equal(what.message:find("[refused]", 1, true), nil)
  -- Waiting too long for a lock of another session is an error that may be retried.
  db:transaction(function(tx)
    tx:execute("update kinds_of set id = 3 where id = 1")
    what = about(try(db.execute, db, "set statement innodb_lock_wait_timeout = 0 for delete from kinds_of where id = 1"))
    check.equal(what.code, 1205)
    check.equal(what.retryable, true)
  end)
  local quick = veche.mysql.connect(veche.config.url .. "&timeout=0.2&pool=1&wait_timeout=0.1")
  local task = veche.spawn(pcall, quick.value, quick, "select sleep(20)")
  veche.sleep(0.01)
  what = about(try(quick.value, quick, "select 7"))
  check.equal(what.kind, "pool_full")
  check.equal(what.code, nil)
  check.equal(what.retryable, true)
  local _, why = task:join()
  what = about(why)
  check.equal(what.kind, "timeout")
  check.equal(what.retryable, false)
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  task = veche.spawn(pcall, one.value, one, "select sleep(21)")
  veche.sleep(0.1)
  db:execute("kill connection " .. db:value("select id from information_schema.processlist where info = 'select sleep(21)'"))
  _, why = task:join()
  what = about(why)
  check.equal(what.kind, "connection_lost")
  check.equal(what.retryable, false)
  local nobody = veche.mysql.connect("mysql://root@127.0.0.1:1/test")
  what = about(try(nobody.value, nobody, "select 1"))
  check.equal(what.kind, "unreachable")
  check.equal(what.retryable, true)
  check.equal(about(try(db.value, db, "select ?")).kind, "invalid")
  check.equal(about(try(one.query, one, "select seq from seq_1_to_20000")).kind, "broken")
  check.equal(about(try(db.value, db)).kind, "script")
  task = veche.spawn(db.value, db, "select sleep(20)")
  veche.sleep(0.01)
  task:cancel()
  check.equal(about(try(task.join, task)).kind, "cancelled")
end

function t.transactions()
  fresh("accounts", "name varchar(10) primary key, sum int")
  db:execute("insert into accounts values ('ann', 10), ('bob', 0)")
  local function sum(name) return db:value("select sum from accounts where name = ?", name) end
  local told = { db:transaction(function(tx, by)
    tx:execute("update accounts set sum = sum - ? where name = 'ann'", by)
    check.equal(sum("ann"), 10)
    check.equal(tx:value("select sum from accounts where name = 'ann'"), 7)
    tx:execute("update accounts set sum = sum + ? where name = 'bob'", by)
    return "done", nil, tx:row("select 1 as one").one
  end, 3) }
  check.equal(told[1] == "done" and told[3], 1)
  check.equal(sum("ann"), 7)
  check.equal(sum("bob"), 3)
  -- An error in the function rolls the transaction back, and is raised unchanged.
  local kept
  local ok, why = pcall(db.transaction, db, function(tx)
    kept = tx
    tx:execute("update accounts set sum = 0")
    error({ mine = true })
  end)
  check.equal(ok, false)
  check.equal(why.mine, true)
  check.equal(sum("ann"), 7)
  check.fails("mysql: the transaction has ended", kept.query, kept, "select 1")
  -- The function may handle an error of the database and continue the transaction.
  db:transaction(function(tx)
    local ok, why = pcall(tx.execute, tx, "insert into accounts values ('ann', 1)")
    check.equal(ok, false)
    check.equal(veche.mysql.code(why), 1062)
    tx:execute("update accounts set sum = 8 where name = 'ann'")
  end)
  check.equal(sum("ann"), 8)
  -- A statement that ends the transaction is detected: later statements fail, and so does the
  -- transaction.
  for _, sql in ipairs { "commit", "rollback", "create or replace table other (id int)" } do
    ok, why = pcall(db.transaction, db, function(tx)
      tx:execute(sql)
      check.fails("mysql: a statement has ended the transaction", tx.execute, tx, "update accounts set sum = 99")
    end)
    check.equal(ok, false)
    check.equal(sum("ann"), 8)
  end
  -- The transaction's connection serves several coroutines one after another.
  db:transaction(function(tx)
    local tasks = {}
    for i = 1, 10 do tasks[i] = veche.spawn(function() return tx:value("select ?", i) end) end
    for i = 1, 10 do check.equal(tasks[i]:join(), i) end
  end)
  -- A transaction without a statement returns the function's result.
  check.equal(db:transaction(function() return 5 end), 5)
end

function t.deadlocks()
  fresh("locks", "id int primary key, n int")
  db:execute("insert into locks values (1, 0), (2, 0)")
  local function both(first, second)
    return veche.spawn(pcall, db.transaction, db, function(tx)
      tx:execute("update locks set n = n + 1 where id = ?", first)
      veche.sleep(0.1)
      local ok, why = pcall(tx.execute, tx, "update locks set n = n + 1 where id = ?", second)
      -- A handler that ignores the error and continues is stopped.
      if not ok then tx:execute("update locks set n = 100") end
      return ok, why
    end)
  end
  local a, b = both(1, 2), both(2, 1)
  local ok_a, why_a = a:join()
  local ok_b, why_b = b:join()
  check.equal(ok_a ~= ok_b, true)
  local why = ok_a and why_b or why_a
  check.equal(why:find("mysql: the server has rolled back the transaction", 1, true) ~= nil, true)
  check.equal(db:value("select sum(n) from locks"), "2")
end

function t.who_is_cancelled_leaves_nothing()
  fresh("traces", "id int primary key")
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  local id = one:value("select connection_id()")
  -- Tasks are cancelled during a statement of a transaction, between two such statements, while they wait for a
  -- connection, and during a statement without a transaction.
  for _, wait in ipairs {
    function(tx) tx:query("select sleep(20)") end,
    function() veche.sleep(20) end,
  } do
    local task = veche.spawn(one.transaction, one, function(tx)
      tx:execute("insert into traces values (1)")
      wait(tx)
    end)
    veche.sleep(0.1)
    local waiting = veche.spawn(one.transaction, one, print)
    veche.sleep(0.05)
    waiting:cancel()
    task:cancel()
    check.fails("cancelled", task.join, task)
    check.equal(one:value("select count(*) from traces"), 0)
  end
  local task = veche.spawn(one.query, one, "select sleep(20)")
  veche.sleep(0.1)
  task:cancel()
  local began = veche.time.monotonic()
  check.equal(one:value("select 7"), 7)
  check.equal(veche.time.monotonic() - began < 3, true)
  check.equal(one:value("select connection_id()") ~= id, true)
end

function t.who_is_stopped_lets_go()
  fresh("stopped", "id int primary key")
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  local task = veche.spawn(one.transaction, one, function(tx)
    tx:execute("insert into stopped values (1)")
    while true do end
  end)
  local ok, why = pcall(task.join, task)
  check.equal(ok, false)
  check.is_true(why:find("ran too long", 1, true), why)
  check.equal(one:value("select count(*) from stopped"), 0)
end

function t.connections_go_back_clean()
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  local id = one:value("select connection_id()")
  one:execute("set @mine = 7, session sql_mode = ''")
  check.equal(one:value("select @mine") == null, true)
  check.equal(one:value("select @@sql_mode") ~= "", true)
  one:execute("use mysql")
  check.equal(one:value("select database()"), "test")
  one:execute("create temporary table mine (id int)")
  check.equal(veche.mysql.code(try(one.query, one, "select * from mine")), 1146)
  fresh("plain", "id int primary key")
  one:execute("begin")
  one:execute("insert into plain values (1)")
  check.equal(db:value("select count(*) from plain"), 1)
  one:execute("lock tables plain write")
  check.equal(db:value("select count(*) from plain"), 1)
  check.equal(one:value("select get_lock('mine', 0)"), 1)
  check.equal(db:value("select is_free_lock('mine')"), 1)
  one:transaction(function(tx)
    tx:execute("set @mine = 7")
    check.equal(tx:value("select @mine"), 7)
  end)
  check.equal(one:value("select @mine") == null, true)
  check.equal(one:value("select connection_id()"), id)
  check.equal(one:value("select @@character_set_client"), "utf8mb4")
end

function t.no_way_to_set_a_variable_leads_to_the_next_user()
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  local id = one:value("select connection_id()")
  db:execute("create or replace function leak(x int) returns int begin set @leak = x; return x; end")
  db:execute("create or replace procedure leak_too() set @leak = 7")
  for _, sql in ipairs {
    "select 7 into  @leak", "select 7 into\n@leak", "select 7 into/**/@leak", "select 7 /*! into @leak */",
    "select @leak := 7", "select @leak/**/:=7", "set @leak = 7", "select leak(7)", "select test.leak (7)",
    "select `leak`(7)", "call leak_too()", "with a as (select 1) select 2, leak(7) from a",
    "select 1 /*/ '*/ into @leak -- '",
  } do
    one:query(sql)
    check.equal(one:value("select @leak") == null, true)
    one:transaction(function(tx) tx:query(sql) end)
    check.equal(one:value("select @leak") == null, true)
  end
  -- Within a transaction, variables of the connection are preserved.
  one:transaction(function(tx)
    tx:query("select 7 into  @leak")
    check.equal(tx:value("select @leak"), 7)
  end)
  one:query("select get_lock  ('leak', 0)")
  check.equal(db:value("select is_free_lock('leak')"), 1)
  check.equal(one:value("select connection_id()"), id)
end

function t.what_leaves_nothing_costs_no_reset()
  local one = veche.mysql.connect(veche.config.url .. "&pool=1")
  fresh("cheap", "id int primary key auto_increment, name varchar(10)")
  -- Resetting a connection drops its prepared statements. If the server's number of prepared statements rises by 1,
  -- the connection was not reset.
  local function prepared() return db:row("show global status like 'Prepared_stmt_count'").Value + 0 end
  local function rises_by(sql, ...)
    one:query("set @x = 1")
    local before = prepared()
    one:query(sql, ...)
    return prepared() - before
  end
  prepared()
  check.equal(rises_by("select 7"), 1)
  check.equal(rises_by("insert into cheap (name) values (?)", "a"), 1)
  check.equal(rises_by("select id, count(*), lower(name) from cheap where id in (?) group by id", 1), 1)
  check.equal(rises_by("update cheap set name = concat(name, ?) where id = last_insert_id()", "b"), 1)
  check.equal(rises_by("select 7 into @x"), 0)
end

function t.nobody_gets_a_dead_connection()
  local some = veche.mysql.connect(veche.config.url .. "&pool=5")
  for _ = 1, 10 do
    local ids, tasks = {}, {}
    for i = 1, 5 do
      tasks[i] = veche.spawn(function() return some:row("select connection_id() as id, sleep(0.05) as s").id end)
    end
    for i = 1, 5 do ids[i] = tasks[i]:join() end
    for i = 1, 4 do db:execute("kill connection " .. ids[i]) end
    for i = 1, 5 do tasks[i] = veche.spawn(some.value, some, "select ?", i) end
    for i = 1, 5 do check.equal(tasks[i]:join(), i) end
  end
  -- A connection that is killed during a statement causes an error; the next call succeeds.
  local task = veche.spawn(pcall, some.value, some, "select sleep(20)")
  veche.sleep(0.1)
  local id = db:value("select id from information_schema.processlist where info = 'select sleep(20)'")
  db:execute("kill connection " .. id)
  local ok, why = task:join()
  check.equal(ok, false)
  check.equal(why:find("mysql: ", 1, true) ~= nil, true)
  check.equal(some:value("select 7"), 7)
end

function t.a_thousand_at_once()
  local many = veche.mysql.connect(veche.config.url .. "&pool=20")
  local tasks = {}
  for i = 1, 1000 do tasks[i] = veche.spawn(many.value, many, "select ? * 2", i) end
  for i = 1, 1000 do check.equal(tasks[i]:join(), i * 2) end
  check.equal(db:value("select count(*) from information_schema.processlist where command <> 'Daemon'") <= 40, true)
end

function t.idle_connections_are_closed()
  local brief = veche.mysql.connect(veche.config.url .. "&pool=3&idle_timeout=0.2")
  local id = brief:value("select connection_id()")
  local function is_there() return db:value("select count(*) from information_schema.processlist where id = ?", id) end
  check.equal(is_there(), 1)
  for _ = 1, 100 do
    if is_there() == 0 then break end
    veche.sleep(0.05)
  end
  check.equal(is_there(), 0)
  check.equal(brief:value("select 7"), 7)
end

function t.many_handles_are_one()
  local first = veche.mysql.connect(veche.config.url .. "&pool=1")
  local id = first:value("select connection_id()")
  for _ = 1, 1000 do first = veche.mysql.connect(veche.config.url .. "&pool=1") end
  check.equal(first:value("select connection_id()"), id)
end

return suite(t, { value = function(req) return tostring(db:value(req.query.sql)) end })
