---@meta
-- `veche.table`: rows with typed columns and ordered indexes, in memory, shared by all workers and all applications of
-- the process. It outlives a reload of the code and ends with the process, unless it is saved.
--
-- What is said of one row is atomic. Reading takes no turns with other readers. A scan sees each row as it is when the
-- scan gets there: it looks at some hundred rows at a time, and others may change the table in between.

---@class veche
local veche = {}

---The table of that name, which comes to be when it is first asked for. Errors: a bad name or schema; another schema than
---it has; none, where there is no such table; 1024 tables already.
---@param name string 1 to 255 bytes.
---@param schema? veche.table_schema Counts when it comes to be; later it may be left out, or has to be the same.
---@return veche.table
function veche.table(name, schema) end

---Types of columns: `bool`; `u8` `u16` `u32` `u64`; `i8` `i16` `i32` `i64`; `f32` `f64`; `string`, UTF-8, of at most
---65535 bytes, or `string(50)`, of at most 50 characters; `bytes` and `bytes(50)`, any bytes; `enum(m,f)`, one of these
---words. A `?` behind a type, as in `u32?`, lets a row have no value there: nil. Whole numbers beyond ±2^53 come and go as
---strings of digits, since Lua's numbers don't hold them.
---@class veche.table_schema
---@field key string The unique key, as `"id:u32"`: any type but `bool`, `f32`, `f64` and `enum`, and not nullable.
---Whole numbers of at most 32 bits are cheapest: they take no memory where they follow each other.
---@field columns table<string, string> Types by name; at most 64. Names begin with a letter and have letters, digits and _.
---@field indexes? table<string, veche.table_index> At most 16. Rows are ordered by the columns in turn; what has no value
---comes first. An index takes about 4.5 bytes for each row, whatever its columns.
---@field ttl? true|number Rows may expire: each with the `ttl` that it was put in with or, where a number is told here,
---so many seconds after it was put in. Takes 8 bytes, and an index.
---@field bytes_max? integer The memory that the table may take, at least 65536; 1 GiB unless told.
---@field evict? string What goes when that is reached: `"key"`, the row with the lowest key; `"ttl"`, the one that expires
---first; or an index's name, its first row. Unless told nothing does, and what needs more is an error.

---Names of columns; `unique = true` beside them allows one row for each combination of values (rows that lack one of the
---values are not counted).
---@class veche.table_index
---@field unique? boolean
---@field [integer] string

---@alias veche.row table<string, any>

---@class veche.table
local table = {}

---Puts a new row in. Errors: the key, or what a unique index holds, is there already; a value is missing, unknown, of
---another type, out of its range or too long; the table is full.
---@param row veche.row
---@param ttl? number Seconds that it stays, from 0.001 to 31536000, if the schema has `ttl`.
function table:insert(row, ttl) end

---Puts a row in unless its key is there.
---@param row veche.row
---@param ttl? number
---@return boolean added
function table:add(row, ttl) end

---Puts a row in, in place of the one with its key if there is one.
---@param row veche.row
---@param ttl? number
---@return boolean inserted False if there was one.
function table:upsert(row, ttl) end

---Changes some values of a row; `veche.null` takes one out. A function gets the row and returns what is to be changed, or
---nil; it must not wait, and is called again if somebody has changed the row meanwhile. When it expires stays as it was.
---Errors: those of `insert`; those of the function, and then nothing has changed; after 1000 calls in vain.
---@param key any
---@param changes veche.row|fun(row: veche.row): veche.row?
---@return boolean found False if there is no such row.
function table:update(key, changes) end

---Adds to a number of a row. Errors: as `update`.
---@param key any
---@param column string
---@param by? number 1 unless told.
---@return number? value The new one; nil if there is no such row.
function table:incr(key, column, by) end

---@param key any
---@return boolean deleted False if there is no such row.
function table:delete(key) end

---Takes all rows out.
function table:clear() end

---A row, as a table of its own; or the values of the columns that are named, which is much faster.
---@param key any
---@param ... string Columns.
---@return veche.row|any|nil row Nil if there is no such row; nothing is told apart from a column without a value then.
---@return any ... Further columns.
function table:get(key, ...) end

---A row as the text of a JSON object: the key first, then the columns by name. Nil if there is no such row.
---@param key any
---@return string?
function table:json(key) end

---@param key any
---@return boolean
function table:has(key) end

---How many rows there are, or how many a scan would find.
---@param index? string
---@param ... any As of `scan`.
---@return integer
function table:count(index, ...) end

---Rows in the order of an index, or of the key by the name `"key"`: those that have these values in its first columns,
---all of them if none is given. `for row in visits:scan("by_user", 7, { from = a, to = b }) do … end`. A long scan waits
---now and then, so that others get their turn, where it can wait.
---@param index string
---@param ... any Values of the first columns; then, if need be, options.
---@return fun(scan): veche.row? next Each row is a table of its own.
---@return table scan What `for` hands to `next`.
function table:scan(index, ...) end

---The same without tables: values of the columns that the options name, of which the first is the key, so that it is never
---nil. `for id, mark in visits:values("by_user", 7, { columns = { "id", "mark" } }) do … end`. Makes no garbage for a row,
---and is faster than `scan`.
---@param index string
---@param ... any As of `scan`; options with columns at the end.
---@return fun(scan): ... next
---@return table scan What `for` hands to `next`.
function table:values(index, ...) end

---@class veche.scan_options
---@field from? any Of the next column, behind those whose values are given: at least this,
---@field to? any at most this,
---@field above? any more than this,
---@field below? any less than this.
---@field reverse? boolean From the last to the first.
---@field limit? integer At most so many rows.
---@field columns? string[] These alone: faster than whole rows.

---What a column amounts to over a scan, without rows in Lua.
---@param column string A number.
---@param index string As of `scan`.
---@param ... any
---@return veche.aggregate
function table:aggregate(column, index, ...) end

---@class veche.aggregate
---@field count integer Rows with a value; the other fields are nil if there are none, but for `sum`.
---@field sum number
---@field min? number
---@field max? number
---@field mean? number

---Several changes, all or none: the function gets a batch with the methods `insert`, `upsert`, `update` and `delete`, which
---are noted and carried out in order when it has returned. Errors: those of the changes and of the function; more than
---10000 changes.
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

---No such row is an error here.
---@param key any
---@param changes veche.row
function batch:update(key, changes) end

---@param key any
function batch:delete(key) end

---What is changed from now on, each change once and in order: `for change in visits:changes() do … end` waits for the next.
---Ends with its coroutine. Whoever is too slow is told how many he has missed.
---@param options? { capacity?: integer } Changes that may wait: from 1 to 1000000, 1000 unless told.
---@return fun(): veche.table_change
function table:changes(options) end

---@class veche.table_change
---@field kind "insert"|"update"|"delete"|"expire"|"evict"|"clear"|"load"|"missed"
---@field key? any
---@field row? veche.row As it is after the change; none where it is gone.
---@field count? integer Of `missed`: how many changes.

---Writes all rows to a file, as they are at one moment, while others go on changing them. The file is there when all of it
---is on the disk, in place of the one that was there. Waits. Errors: the file can't be written; it is not below
---`server.snapshots`, and `server.sandbox` is on.
---@param path string Absolute, or from `server.snapshots`; where that is not set, from the folder of the application.
---@return integer rows
function table:save(path) end

---Puts the rows of a file that `save` has written in place of those there are. Waits; meanwhile nothing can be changed. Errors, and then nothing has changed:
---the file can't be read; it is damaged, and at which byte; its columns are others; the table is full.
---@param path string As of `save`.
---@return integer rows
function table:load(path) end

---Puts rows in from JSON: a file with a list of objects, or an object with a list in one of its fields. What stands in
---an object beyond the columns is an error. Several files are read in parallel. Waits. Into an empty table it is all or
---nothing; meanwhile `get`, `has` and `json` work, and everything else is an error. Where there are rows already, what is in
---before an error stays. Bytes are Base64.
---@param path string A file, a folder, or an archive (.zip), absolute or from the folder of the application; a file may be
---compressed (.gz).
---@param options? veche.table_load_options
---@return integer rows
function table:load_json(path, options) end

---The same from lines of JSON, an object each.
---@param path string
---@param options? veche.table_load_options
---@return integer rows
function table:load_ndjson(path, options) end

---The same from CSV (RFC 4180), whose first line names the columns. An empty field is no value where the column may lack
---one.
---@param path string
---@param options? veche.table_load_options
---@return integer rows
function table:load_csv(path, options) end

---@class veche.table_load_options
---@field files? string Which files of a folder or an archive: a pattern with * and ?, such as `"visits_*.json"`; those with
---the format's ending unless told. Folders in folders are not looked into.
---@field list? string JSON: the field with the list; the only one that is a list unless told.
---@field conflict? "error"|"replace"|"skip" What a row does whose key is there; `"error"` unless told. Which of two rows of
---different files comes first is not told.
---@field progress? fun(rows: integer, bytes: integer, bytes_total: integer) Called about four times a second.

---@class veche.table_info
---@field rows integer
---@field bytes integer
---@field bytes_max integer
---@field evicted integer Rows that went for want of room, so far.
---@field columns table<string, integer> Bytes by column.
---@field indexes table<string, integer> Bytes by index.

---@return veche.table_info
function table:info() end
