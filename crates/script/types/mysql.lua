---@meta
-- `veche.mysql`: MySQL and MariaDB. Every statement is prepared and its values are bound: what a value says never becomes
-- a part of a statement.

---@class veche
---@field mysql veche.mysql
---@field null lightuserdata NULL of a database, null of JSON: the same value as `veche.json.null`.
local veche = {}

---@class veche.mysql
local mysql = {}

---A database. Connects when the first statement comes, so it may be called while the script is loaded. Those with the
---same options, in all workers and applications, share one pool of connections.
---
---```lua
---local db = veche.mysql.connect("mysql://user:password@127.0.0.1/shop?pool=50")
---```
---In a URL, characters such as `@` and `/` of user and password are written as `%40` and `%2F`; options stand behind the
---`?`. `mysqls://` is TLS.
---Errors: a bad URL; an option that there is not, or out of its range; 256 different databases already.
---@param options string|veche.mysql.options A URL, or a table.
---@return veche.database
function mysql.connect(options) end

---The server's code of an error, such as 1062 for a duplicate or 1213 for a deadlock. `veche.error` tells it as well, and what
---has happened where there is none: a full pool, a timeout, a lost connection.
---
---```lua
---local ok, why = pcall(db.execute, db, "insert into users (name) values (?)", name)
---if not ok and veche.mysql.code(why) == 1062 then return 409 end
---```
---@param why any What `pcall` gives.
---@return integer? code Nil if it is no error of the server.
function mysql.code(why) end

---@class veche.mysql.options
---@field host? string A name or an address; "127.0.0.1" unless told.
---@field port? integer 3306 unless told.
---@field user? string
---@field password? string
---@field database? string
---@field tls? boolean|{ ca: string } `true`: the server's certificate is checked against the authorities that browsers trust; `ca`: against that PEM file.
---@field pool? integer Most connections, 1 to 10000; 10 unless told.
---@field pool_name? string Those with another name share no connections, and its errors say it. 1 to 64 bytes; host, port and
---database unless told.
---@field connect_timeout? number Seconds until a connection has to be there; 5 unless told.
---@field wait_timeout? number Seconds to wait for a connection to be free; 10 unless told.
---@field timeout? number Seconds that a statement may take; 30 unless told. Beyond it the server is told to end it.
---@field idle_timeout? number Seconds after which a connection that nobody uses is closed; 300 unless told.
---@field rows_max? integer Most rows of one result, up to 1000000; 10000 unless told.
---@field bytes_max? integer Most bytes of one result, up to 1 GiB; 16 MiB unless told.

---What can be a value: a string (text or bytes), a number, a boolean (1 or 0), `veche.null`. Nil is an error, since it is
---more often a mistake than a NULL.
---
---What comes back: NULL is `veche.null`; whole numbers up to 2^53 and floating ones are numbers; larger ones, DECIMAL,
---JSON and all text are strings; DATE is "2026-02-03", DATETIME and TIMESTAMP "2026-02-03 04:05:06" with as many digits
---behind the second as the column has, TIME "-100:01:02"; BLOB and BIT are bytes.
---@alias veche.sql_value string|number|boolean|lightuserdata

---What a statement leaves on its connection (variables, settings, locks, temporary tables, another database) is gone when its
---call returns, or its transaction has ended.
---
---Errors of all its methods, with their kinds as `veche.error` tells them: "refused", the server's code, state and words
---("mysql: 1062 (23000): Duplicate entry …"); "unreachable" and "connection_lost"; "pool_full", no free connection in time, with
---the statements that have them; "timeout", no result in time; "broken", a result over `rows_max` or `bytes_max`; "invalid", two
---columns of the same name, or more or fewer values than the statement has places. A bad argument; where nothing can wait.
---After "timeout" and "connection_lost" a statement that changes something may or may not have been carried out.
---@class veche.database
local database = {}

---All rows, each a table by the names of its columns. Waits.
---
---```lua
---for _, user in ipairs(db:query("select id, name from users where age > ?", 18)) do print(user.id, user.name) end
---```
---@param sql string One statement, with a `?` for each value.
---@param ... veche.sql_value
---@return table<string, veche.sql_value>[] rows
function database:query(sql, ...) end

---The first row. Waits.
---@param sql string
---@param ... veche.sql_value
---@return table<string, veche.sql_value>? row Nil if there is none.
function database:row(sql, ...) end

---The first value of the first row. Waits.
---@param sql string
---@param ... veche.sql_value
---@return veche.sql_value? value Nil if there is no row.
function database:value(sql, ...) end

---Carries out what changes something. Waits.
---@param sql string
---@param ... veche.sql_value
---@return { affected: number, last_id: number|string|nil, rows: table<string, veche.sql_value>[]|nil } # Rows that were
---changed, and the first number that the server gave to a new row. Of a statement that gives rows (`insert … returning id`)
---those, and no `last_id`.
function database:execute(sql, ...) end

---Calls a function with a transaction, which has the methods `query`, `row`, `value` and `execute`. When the function
---returns, all is committed; if it fails or its coroutine is cancelled, nothing. Statements of `db` itself are outside of
---it. What ends a transaction behind its back (COMMIT, a deadlock, a statement such as CREATE TABLE) is an error at the
---next call. Waits.
---
---```lua
---db:transaction(function(tx)
---  tx:execute("update accounts set sum = sum - ? where id = ?", sum, from)
---  tx:execute("update accounts set sum = sum + ? where id = ?", sum, to)
---end)
---```
---@generic T
---@param f fun(tx: veche.database, ...: any): T
---@param ... any What `f` is called with besides.
---@return T ... What it returns.
function database:transaction(f, ...) end

return veche
