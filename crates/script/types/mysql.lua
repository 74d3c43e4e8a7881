---@meta
-- `veche.mysql`: a client for MySQL and MariaDB. Every statement is prepared and its values are bound, so that a value is
-- never interpreted as SQL.

---@class veche
---@field mysql veche.mysql
---@field null lightuserdata NULL in databases and null in JSON: the same value as `veche.json.null`.
local veche = {}

---@class veche.mysql
local mysql = {}

---Returns a client for a database. Connections are opened when the first statement is executed, so this may be called while
---the script is loaded. Clients with the same options, in all workers and applications, share one connection pool.
---
---```lua
---local db = veche.mysql.connect("mysql://user:password@127.0.0.1/shop?pool=50")
---```
---In a URL, characters such as `@` and `/` in the user name and password are written as `%40` and `%2F`; options follow the
---`?`. `mysqls://` uses TLS. The name of a `[[database]]` of the configuration stands for its URL and options.
---Errors: an unknown name; an invalid URL; an unknown option, or one out of range; more than 256 different databases.
---@param options string|veche.mysql.options A URL, a name in the configuration, or a table.
---@return veche.database
function mysql.connect(options) end

---Returns the server's code of an error, such as 1062 for a duplicate key or 1213 for a deadlock. `veche.error` returns it
---too, and classifies errors without a code: an exhausted pool, a timeout, a lost connection.
---
---```lua
---local ok, why = pcall(db.execute, db, "insert into users (name) values (?)", name)
---if not ok and veche.mysql.code(why) == 1062 then return 409 end
---```
---@param why any An error caught by `pcall`.
---@return integer? code Nil if it is not an error from the server.
function mysql.code(why) end

---@class veche.mysql.options
---@field host? string A name or an IP address; "127.0.0.1" by default.
---@field port? integer 3306 by default.
---@field user? string
---@field password? string
---@field database? string
---@field tls? boolean|{ ca: string } `true`: verifies the server's certificate against the certificate authorities that browsers trust; `ca`: against those in this PEM file.
---@field pool? integer Maximum number of connections, 1 to 10000; 10 by default.
---@field pool_name? string Clients with different names do not share connections; errors contain the name. 1 to 64 bytes;
---host, port and database by default.
---@field connect_timeout? number Seconds for opening a connection; 5 by default.
---@field wait_timeout? number Seconds to wait for a free connection; 10 by default.
---@field timeout? number Maximum duration of a statement in seconds; 30 by default. After that the server is asked to cancel it.
---@field idle_timeout? number Seconds after which an unused connection is closed; 300 by default.
---@field rows_max? integer Maximum number of rows of a result, up to 1000000; 10000 by default.
---@field bytes_max? integer Maximum size of a result in bytes, up to 1 GiB; 16 MiB by default.

---Values of parameters: a string (text or bytes), a number, a boolean (1 or 0), `veche.null`. Nil is an error, since it is
---more often a mistake than a NULL.
---
---Values in results: NULL is `veche.null`; integers up to 2^53 and floating-point values are numbers; larger integers,
---DECIMAL, JSON and text are strings; DATE is "2026-02-03", DATETIME and TIMESTAMP are "2026-02-03 04:05:06" with the
---column's fractional digits, TIME is "-100:01:02"; BLOB and BIT are bytes.
---@alias veche.sql_value string|number|boolean|lightuserdata

---Session state that a statement creates (variables, settings, locks, temporary tables, another database) is reset when the
---call returns, or when its transaction ends.
---
---Errors of all methods, with the kinds that `veche.error` gives: "refused", with the server's code, state and message
---("mysql: 1062 (23000): Duplicate entry …"); "unreachable" and "connection_lost"; "pool_full", no connection became
---free in time (the text names the statements that hold connections); "timeout", no result in time; "broken", a result
---above `rows_max` or `bytes_max`; "invalid", two columns with the same name, or a number of values that differs
---from the number of `?`. Invalid arguments are errors too, as are calls in places where waiting is impossible. After
---"timeout" and "connection_lost" a statement that changes data may or may not have been executed.
---@class veche.database
local database = {}

---Executes a statement and returns all rows, as tables by column name. Waits.
---
---```lua
---for _, user in ipairs(db:query("select id, name from users where age > ?", 18)) do print(user.id, user.name) end
---```
---@param sql string One statement, with a `?` for each value.
---@param ... veche.sql_value
---@return table<string, veche.sql_value>[] rows
function database:query(sql, ...) end

---Executes a statement and returns its first row. Waits.
---@param sql string
---@param ... veche.sql_value
---@return table<string, veche.sql_value>? row Nil if there is none.
function database:row(sql, ...) end

---Executes a statement and returns the first value of its first row. Waits.
---@param sql string
---@param ... veche.sql_value
---@return veche.sql_value? value Nil if there is no row.
function database:value(sql, ...) end

---Executes a statement that changes data. Waits.
---@param sql string
---@param ... veche.sql_value
---@return { affected: number, last_id: number|string|nil, rows: table<string, veche.sql_value>[]|nil } # The number of
---changed rows, and the first automatically generated id. A statement that returns rows (`insert … returning id`) has
---these rows in its result, and no `last_id`.
function database:execute(sql, ...) end

---Calls a function with a transaction, which has the methods `query`, `row`, `value` and `execute`. The transaction is
---committed when the function returns, and rolled back if it fails or its coroutine is cancelled. Statements executed on
---`db` itself are not part of it. If something else ends the transaction (COMMIT, a deadlock, a statement such as CREATE
---TABLE), the next call fails. Waits.
---
---```lua
---db:transaction(function(tx)
---  tx:execute("update accounts set sum = sum - ? where id = ?", sum, from)
---  tx:execute("update accounts set sum = sum + ? where id = ?", sum, to)
---end)
---```
---@generic T
---@param f fun(tx: veche.database, ...: any): T
---@param ... any Further arguments of `f`.
---@return T ... The results of `f`.
function database:transaction(f, ...) end

return veche
