-- `veche.mysql`: databases and transactions as objects; Rust runs the statements.
--
-- A transaction holds a connection by a lease, and ends when the function passed to `transaction` ends.
-- If the coroutine is stopped, the function does not end, so `reclaim` releases the leases of dead
-- coroutines. The lease of a coroutine that is never resumed is released when the transaction is
-- garbage-collected, so nothing in this file may hold a strong reference to the transaction.
local inner = ...

local native, await_reply, pcall = inner.native.mysql, inner.await_reply, inner.pcall
local drop_lease, running, status = inner.native.drop_lease, inner.coroutine_running, inner.coroutine_status
local error, next, pairs, setmetatable, type, unpack, select =
  error, next, pairs, setmetatable, type, unpack, select

-- `databases` maps database objects to numbers, `transactions` maps transaction objects to their states.
local databases = setmetatable({}, { __mode = "k" })
local transactions = setmetatable({}, { __mode = "k" })

local function class(kind)
  local methods = {}
  return methods, {
    __index = methods,
    __newindex = function() error("a " .. kind .. "'s fields can't be set", 2) end,
    __metatable = false,
  }
end

local Database, database_meta = class("database")
local Transaction, transaction_meta = class("transaction")

local function no_object(kind, name)
  error("bad argument #1 to '" .. name .. "': a " .. kind .. " expected (call it with a colon)", 3)
end

for _, name in pairs { "query", "row", "value", "execute" } do
  local run = native[name]
  Database[name] = function(self, ...)
    local number = databases[self]
    if not number then no_object("database", name) end
    return await_reply(run, number, nil, ...)
  end
  Transaction[name] = function(self, ...)
    local transaction = transactions[self]
    if not transaction then no_object("transaction", name) end
    return await_reply(run, transaction.database, transaction.lease, ...)
  end
end

-- Maps each open transaction to its coroutine, as long as the coroutine can be resumed.
local coroutines = setmetatable({}, { __mode = "kv" })

local function finish(transaction, ok, ...)
  coroutines[transaction] = nil
  local done, why = pcall(await_reply, native.finish, transaction.database, transaction.lease, ok)
  if not ok then error((...), 0) end
  if not done then error(why, 3) end
  return ...
end

function Database:transaction(f, ...)
  local number = databases[self]
  if not number then no_object("database", "transaction") end
  if type(f) ~= "function" then error("bad argument #1 to 'transaction': a function expected", 2) end
  local ok, lease, guard = pcall(await_reply, native.begin, number)
  if not ok then error(lease, 2) end
  local transaction = { database = number, lease = lease, guard = guard }
  coroutines[transaction] = running()
  local object = setmetatable({}, transaction_meta)
  transactions[object] = transaction
  return finish(transaction, pcall(f, object, ...))
end

local reclaim = inner.reclaim

function inner.reclaim()
  reclaim()
  for transaction, coroutine in next, coroutines do
    if status(coroutine) == "dead" then
      coroutines[transaction] = nil
      drop_lease(transaction.lease)
    end
  end
end

return {
  mysql = {
    connect = function(options)
      local database = setmetatable({}, database_meta)
      databases[database] = native.connect(options)
      return database
    end,
    -- Returns the server's error code, from the text of an error.
    code = function(why)
      local code = type(why) == "string" and why:match("mysql: (%d+) %(")
      return code and code + 0 or nil
    end,
  },
}
