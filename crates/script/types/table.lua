---@meta
-- `veche.table`: in-memory tables with typed columns and ordered indexes, shared by all workers and all applications of the
-- process. A table survives a reload of the code and ends with the process, unless it is saved.
--
-- Operations on one row are atomic. Readers do not block each other. A scan sees each row as it is when the scan reaches it:
-- it reads a few hundred rows at a time, and the table may be changed in between.

---@class veche
local veche = {}

---Returns the table of that name, and creates it if it does not exist. Errors: an invalid name or schema; a schema that
---differs from the table's; no schema for a table that does not exist; 1024 tables already.
---@param name string 1 to 255 bytes.
---@param schema? veche.table_schema Required to create the table; later it may be omitted, or must be the same.
---@return veche.table
function veche.table(name, schema) end

---Column types: `bool`; `u8` `u16` `u32` `u64`; `i8` `i16` `i32` `i64`; `f32` `f64`; `string`, UTF-8 of up to 65535 bytes,
---or `string(50)`, up to 50 characters; `bytes` and `bytes(50)`, arbitrary bytes; `enum(m,f)`, one of these words. A `?`
---after a type, as in `u32?`, makes the column nullable: its value may be nil. Integers beyond ±2^53 are passed as strings of
---digits, since Lua numbers can't represent them.
---@class veche.table_schema
---@field key string The unique key, as `"id:u32"`: any type but `bool`, `f32`, `f64` and `enum`, and not nullable.
---Integers of up to 32 bits are cheapest: consecutive ones take no memory.
---@field columns table<string, string> Types by name; up to 64. Names begin with a letter and consist of letters, digits and _.
---@field indexes? table<string, veche.table_index> Up to 16. Rows are ordered by the columns in turn; rows without
---a value come first. An index takes about 4.5 bytes per row, whatever its columns.
---@field ttl? true|number Rows may expire: each after the `ttl` with which it was inserted or, if a number is given here,
---by default after this many seconds. Takes 8 bytes per row and an index.
---@field bytes_max? integer Memory limit of the table, at least 65536; 1 GiB by default.
---@field evict? string What is evicted when the limit is reached: `"key"`, the row with the lowest key; `"ttl"`, the row
---that expires first; or the name of an index, the first row of that index. By default nothing is evicted, and changes that
---need more memory raise errors.

---Names of columns; with `unique = true` only one row may have each combination of values (rows in which one of the values is
---nil are exempt).
---@class veche.table_index
---@field unique? boolean
---@field [integer] string

---@alias veche.row table<string, any>

---@class veche.table
local table = {}

---Inserts a new row. Errors: the key, or the values of a unique index, exist already; a value is missing, of an unknown
---column, of another type, out of range or too long; the table is full.
---@param row veche.row
---@param ttl? number Lifetime in seconds, from 0.001 to 31536000, if the schema has `ttl`.
function table:insert(row, ttl) end

---Inserts a row unless its key exists.
---@param row veche.row
---@param ttl? number
---@return boolean added
function table:add(row, ttl) end

---Inserts a row, or replaces the row with the same key.
---@param row veche.row
---@param ttl? number
---@return boolean inserted False if a row was replaced.
function table:upsert(row, ttl) end

---Changes some values of a row; `veche.null` clears a value. A function gets the row and returns the changes, or nil; it must
---not wait, and is called again if the row was changed meanwhile. The row's expiry does not change.
---Errors: those of `insert`; those of the function, in which case nothing is changed; no success after 1000 calls.
---@param key any
---@param changes veche.row|fun(row: veche.row): veche.row?
---@return boolean found False if there is no such row.
function table:update(key, changes) end

---Adds to a number in a row. Errors: those of `update`.
---@param key any
---@param column string
---@param by? number 1 by default.
---@return number? value The new value; nil if there is no such row.
function table:incr(key, column, by) end

---@param key any
---@return boolean deleted False if there is no such row.
function table:delete(key) end

---Deletes all rows.
function table:clear() end

---Returns a row as a new table; or the values of the named columns, which is much faster.
---@param key any
---@param ... string Columns.
---@return veche.row|any|nil row Nil if there is no such row; with named columns this can't be distinguished from a column without
---a value.
---@return any ... Values of further columns.
function table:get(key, ...) end

---Returns a row as the text of a JSON object: the key first, then the columns by name. Nil if there is no such row.
---@param key any
---@return string?
function table:json(key) end

---@param key any
---@return boolean
function table:has(key) end

---Counts all rows, or those that a scan with the same arguments would return.
---@param index? string
---@param ... any As for `scan`.
---@return integer
function table:count(index, ...) end

---Iterates over rows in the order of an index, or with the name `"key"` in the order of keys: rows with these values in the
---first columns of the index, or all rows if no values are given:
---`for row in visits:scan("by_user", 7, { from = a, to = b }) do … end`. Where waiting is possible, a long scan yields from
---time to time, so that other coroutines can run.
---@param index string
---@param ... any Values of the first columns, optionally followed by options.
---@return fun(scan): veche.row? next Each row is a new table.
---@return table scan The state that `for` passes to `next`.
function table:scan(index, ...) end

---Like `scan`, but returns the values of the columns that the options name instead of tables. The first column must be the
---key, which is never nil. `for id, mark in visits:values("by_user", 7, { columns = { "id", "mark" } }) do … end`. Allocates
---nothing per row, and is faster than `scan`.
---@param index string
---@param ... any As for `scan`; options with `columns` are required at the end.
---@return fun(scan): ... next
---@return table scan The state that `for` passes to `next`.
function table:values(index, ...) end

---@class veche.scan_options
---@field from? any Lower bound, inclusive, of the next column after those whose values are given.
---@field to? any Upper bound, inclusive.
---@field above? any Lower bound, exclusive.
---@field below? any Upper bound, exclusive.
---@field reverse? boolean Last row first.
---@field limit? integer Maximum number of rows.
---@field columns? string[] Only these columns, which is faster than whole rows.

---Aggregates a column over a scan, without creating rows in Lua.
---@param column string A numeric column.
---@param index string As for `scan`.
---@param ... any
---@return veche.aggregate
function table:aggregate(column, index, ...) end

---@class veche.aggregate
---@field count integer Number of rows with a value; if it is 0, the other fields except `sum` are nil.
---@field sum number
---@field min? number
---@field max? number
---@field mean? number

---Applies several changes atomically: the function gets a batch with the methods `insert`, `upsert`, `update` and `delete`,
---which record changes; they are applied in order when the function has returned. Errors: those of the changes and of the
---function; more than 10000 changes, or values of more than 16 MiB.
---@param f fun(batch: veche.table_batch)
function table:batch(f) end

---@class veche.table_batch
local batch = {}

---@param row veche.row
---@param ttl? number
function batch:insert(row, ttl) end

---@param row veche.row
---@param ttl? number
function batch:upsert(row, ttl) end

---Unlike `table:update`, a missing row is an error.
---@param key any
---@param changes veche.row
function batch:update(key, changes) end

---@param key any
function batch:delete(key) end

---Iterates over the changes made from now on, each once and in order: `for change in visits:changes() do … end` waits for the
---next one. Ends with its coroutine. A reader that is too slow gets the number of changes it missed.
---@param options? { capacity?: integer } Maximum number of queued changes: from 1 to 1000000, 1000 by default.
---@return fun(): veche.table_change
function table:changes(options) end

---@class veche.table_change
---@field kind "insert"|"update"|"delete"|"expire"|"evict"|"clear"|"load"|"missed"
---@field key? any
---@field row? veche.row The row after the change; nil if it was removed.
---@field count? integer For `missed`: the number of changes.

---Saves a consistent snapshot of all rows to a file; the table can be changed meanwhile. The file replaces an existing one
---only once it is completely written to disk. Waits. Errors: the file can't be written; it is not below `server.snapshots`
---while `server.sandbox` is on.
---@param path string Absolute, or relative to `server.snapshots`, or if that is not set to the application's folder.
---@return integer rows
function table:save(path) end

---Replaces all rows with those of a file written by `save`. Waits; meanwhile the table can't be changed. Errors, after which
---the table is unchanged: the file can't be read; it is damaged (with the byte offset); it has other columns; the table is
---full.
---@param path string As for `save`.
---@return integer rows
function table:load(path) end

---Imports rows from JSON: a file with a list of objects, or with an object that has a list in one of its fields. Fields that
---are not columns are an error. Several files are read in parallel. Waits. An import into an empty table is atomic; meanwhile
---only `get`, `has` and `json` work, and all other calls fail. If the table has rows already, rows imported before an error
---remain. Bytes are encoded as Base64.
---@param path string A file, a folder, or an archive (.zip), absolute or relative to the application's folder; a file may be
---compressed (.gz).
---@param options? veche.table_load_options
---@return integer rows
function table:load_json(path, options) end

---Imports rows from JSON lines, with one object per line; otherwise like `load_json`.
---@param path string
---@param options? veche.table_load_options
---@return integer rows
function table:load_ndjson(path, options) end

---Imports rows from CSV (RFC 4180), whose first line names the columns; otherwise like `load_json`. An empty field is nil if
---the column is nullable.
---@param path string
---@param options? veche.table_load_options
---@return integer rows
function table:load_csv(path, options) end

---@class veche.table_load_options
---@field files? string Which files of a folder or an archive: a pattern with * and ?, such as `"visits_*.json"`; by default
---files with the format's extension. Subfolders are not searched.
---@field list? string JSON: the field with the list; by default the only field that is a list.
---@field conflict? "error"|"replace"|"skip" What happens to a row whose key exists; `"error"` by default. The order of rows
---from different files is not defined.
---@field progress? fun(rows: integer, bytes: integer, bytes_total: integer) Called about four times a second.

---@class veche.table_info
---@field rows integer
---@field bytes integer
---@field bytes_max integer
---@field evicted integer Number of rows evicted so far.
---@field columns table<string, integer> Bytes by column.
---@field indexes table<string, integer> Bytes by index.

---Returns the size of the table.
---@return veche.table_info
function table:info() end
