---@meta veche.test
-- `require "veche.test"`: tests of an application. Only in files named `*_test.lua`, which `veche test` runs. Each case runs
-- in a separate environment: new VMs of the application, no connections, and a simulated clock that starts at 2026-01-01
-- 00:00:00 UTC. Calls that observe the application first let it run until it has nothing left to do at the current time. The
-- clock stands still, except in `test.advance`, `veche.sleep`, calls with `within`, and while
-- `test.connect` and `test.request` wait for their responses.

---@class veche.test
local test = {}

---Defines a test case. Errors: called within a case; invalid arguments.
---@param name string
---@param run fun() The case passes unless it raises an error, one of its tasks or timers raises an
---error that no `join` receives, or the application logs an error that `test.expect_error` does not
---expect.
---@param options? { services: boolean|string[]|nil } `services = false`: no service of the configuration runs during the
---case; a list: only services with these names.
function test.case(name, run, options) end

---Defines a case that is counted but not run.
---@param name string
---@param run fun()
---@param options? { services: boolean|string[]|nil }
function test.skip(name, run, options) end

---Sets a function that runs before each case of the file, in the case's environment.
---@param run fun()
function test.before_each(run) end

---Sets a function that runs after each case that has not failed.
---@param run fun()
function test.after_each(run) end

---@class veche.test.options
---@field headers? table<string, string|number|string[]>
---@field cookies? table<string, string>
---@field remote? string The client's IP address; 127.0.0.1 by default.
---@field listener? string The name of a listener, or "internal"; the first public one by default.
---@field within? number Seconds by which the test's clock may advance while the call waits; 120 by default.

---@class veche.test.connect_options: veche.test.options
---@field protocols? string|string[] Subprotocols to offer.

---Opens a WebSocket. Returns nil and the response if the handshake is refused. Errors: invalid arguments; no response in
---time; no such listener.
---@param target string Path and query: `/chat?user=ann`.
---@param options? veche.test.connect_options
---@return veche.test.client? client
---@return veche.test.response? refusal
function test.connect(target, options) end

---A simulated client. Messages for it are queued in order until they are expected, received or taken.
---@class veche.test.client
---@field target string
---@field protocol? string The subprotocol that the server chose.
local client = {}

---Sends a message; a table is sent as JSON. Does not wait: messages that different clients send without a wait in between
---arrive in an order that depends on the seed; those of one client arrive in order. Errors: the connection is closed;
---invalid arguments.
---@param data string|number|table
---@param kind? "text"|"binary"
---@return veche.test.client self
function client:send(data, kind) end

---@class veche.test.expect_options
---@field within? number Seconds by which the test's clock may advance until the message arrives; 0 by default.
---@field kind? "text"|"binary" Any by default.

---Takes the next message and checks it: it must be exactly the expected text; JSON equal to the expected table, in which
---`test.any`, `test.like` and functions match values; or accepted by the expected function. Errors: a different message,
---no message, or a close.
---@param expected? string|table|fun(data: string, kind: "text"|"binary"): any Nil accepts any message.
---@param options? veche.test.expect_options
---@return any message The text, or the decoded JSON if a table was expected.
function client:expect(expected, options) end

---Checks that no message has arrived. Errors: a message has arrived.
---@param options? { within?: number }
function client:expect_nothing(options) end

---Checks that the connection is closed next; the code is 1006 if it was lost without a Close frame. Errors: another code or
---reason; a message; the connection is open.
---@param code? integer
---@param reason? string
---@param options? { within?: number }
---@return integer code
---@return string reason
function client:expect_close(code, reason, options) end

---Returns the next message and its kind; nil and "nothing"; or nil, "closed", code and reason.
---@param options? { within?: number }
---@return string? data
---@return string kind
---@return integer? code
---@return string? reason
function client:receive(options) end

---Returns all messages that have arrived so far; a close is consumed with them.
---@return string[] messages
function client:take() end

---@return boolean is_open
function client:is_open() end

---Starts the closing handshake.
---@param code? integer 1000 to 4999; 1000 by default.
---@param reason? string
function client:close(code, reason) end

---Drops the connection, without a Close frame.
function client:drop() end

---Stops reading. Until `resume` is called, the client answers no pings.
function client:pause() end

---Resumes reading.
function client:resume() end

---@class veche.test.request_options: veche.test.options
---@field path? string Path and query.
---@field method? string GET by default, POST with a body.
---@field json? any The body as JSON, with its Content-Type.
---@field body? string

---@class veche.test.response
---@field status integer
---@field headers table<string, string> Names in lower case; several values of one name are joined by ", ", Set-Cookie by "\n".
---@field body string
---@field json any The decoded body, nil if it is not JSON.

---Sends an HTTP request on a new connection. Errors: invalid arguments; no response in time; no such listener.
---@param options string|veche.test.request_options `"/path"`, `"DELETE /path"`, or a table.
---@param more? veche.test.request_options Options, if `options` is a string.
---@return veche.test.response response
function test.request(options, more) end

---Advances the test's clock; timers, sleeps, timeouts and pings happen at their times. Timers of the same millisecond fire
---in an order that depends on the seed.
---@param seconds number 0 to 31536000.
function test.advance(seconds) end

---Lets the application run until it has nothing left to do at the current time.
function test.settle() end

---Returns the seconds since the case began, by the test's clock.
---@return number seconds
function test.now() end

---Publishes to a channel, like a back end. Errors: an invalid name; invalid arguments.
---@param channel string
---@param data string|number|table A table is sent as JSON.
---@param kind? "text"|"binary"
---@return integer handed Number of receivers.
function test.publish(channel, data, kind) end

---Publishes to a user, like a back end.
---@param user string
---@param data string|number|table
---@param kind? "text"|"binary"
---@return integer handed Number of connections that received it.
function test.push(user, data, kind) end

---Returns what the application has published: the texts published to `channel`, or all publications if `channel` is nil.
---@param channel? string `#ann` is the personal channel of the user `ann`.
---@return string[]|{channel: string, data: string, kind: "text"|"binary"}[] published
function test.published(channel) end

---Returns what the application has logged.
---@return {level: "debug"|"info"|"warn"|"error", text: string}[] lines
function test.log() end

---Checks that the application has logged an error that matches `pattern`; this error does not fail the case. Each call
---expects one error.
---@param pattern string A Lua pattern.
---@return string text The error with its traceback.
function test.expect_error(pattern) end

-- Stubs replace other servers for the duration of a case. Nothing leaves the process: a call of the application without a
-- matching stub fails, and fails the case with an error that names the missing stub. Later stubs take precedence.
--
-- The answer is fixed, or returned by a function that is called for each call in a new coroutine. It may wait, by the test's
-- clock, so that timeouts of the application can be tested. An error in it fails the case.

---Makes a call fail with an error instead of returning an answer.
---@class veche.test.failure
---@field fails "timeout"|"pool_full"|"unreachable"|"connection_lost"|"refused"|"invalid"|"broken" The kind, as
---`veche.error` gives it.
---@field words? string The error's text. For errors of a server: `{ fails = "refused", words = "1062 (23000): Duplicate entry" }`
---for MySQL, whose code `veche.mysql.code` returns; `{ fails = "refused", words = "WRONGTYPE …" }` for Redis.

---@class veche.test.answer
---@field status? integer 200 by default.
---@field headers? table<string, string>
---@field body? string
---@field parts? string[] The body in pieces, as read with `stream`.
---@field json? any The body as JSON, with its Content-Type.

---@class veche.test.seen_request
---@field method string
---@field url string
---@field headers table<string, string>
---@field body string

---Answers HTTP requests of the application (`veche.http`) to a URL. Errors: invalid arguments.
---@param method string The method of the requests; "*" matches any.
---@param url string The URL including its query; a "*" at the end matches any suffix.
---@param answer veche.test.answer|veche.test.failure|fun(request: veche.test.seen_request): veche.test.answer|veche.test.failure
function test.stub_http(method, url, answer) end

---Resolves a host name to these addresses for the application. Not required for hosts of `test.stub_websocket`.
---@param host string
---@param addresses string|string[]|veche.test.failure
function test.stub_resolve(host, addresses) end

---Answers SQL statements of the application (`veche.mysql`): `{ { id = 1, name = "Ann" } }` is a list of rows, `{}` an empty
---one; a string, a number, a boolean or `veche.null` answers `db:value`; `{ affected = 1, last_id = 7 }` answers
---`db:execute`. A column that a row lacks is NULL in that row. Transactions need no stub; stubs for "BEGIN", "COMMIT" and
---"ROLLBACK" can make them fail. Errors: invalid arguments. An answer that does not fit the call fails the case.
---@param sql string Any white space counts as one space; a "*" at the end matches any suffix, "*" alone any statement.
---@param answer any|veche.test.failure|fun(sql: string, ...: any): any The function gets the statement and its values.
function test.stub_mysql(sql, answer) end

---Answers Redis commands of the application (`veche.redis`): with nil, a string, a number, a boolean, a list, or a table as
---for HGETALL. Each command of a pipeline or a transaction is answered by its own stub. Errors: invalid arguments.
---
---Subscriptions need no stub, and PUBLISH without a stub reaches them; stubs for "SUBSCRIBE name" can make them fail.
---@param command string The name and its arguments, separated by spaces: "GET name". A "*" at the end matches any suffix.
---@param answer any|veche.test.failure|fun(command: string, ...: string): any
function test.stub_redis(command, answer) end

---Publishes a message to the application's Redis subscriptions.
---@param channel string
---@param data string|number|table A table is sent as JSON.
---@return integer handed Number of subscriptions that received it.
function test.redis_publish(channel, data) end

---@class veche.test.server_options
---@field protocol? string The subprotocol that the server chooses.
---@field status? integer Refuses the handshake with this status.
---@field body? string Body of that response.

---Adds a WebSocket server that the application (`veche.websocket`) can connect to, including `wss://`, without a
---certificate. With `fails` connecting fails; with "timeout" the server never answers. Errors: invalid arguments.
---@param url string `ws://host:port/path?query` or `wss://…`; a "*" at the end matches any suffix.
---@param options? veche.test.server_options|veche.test.failure
---@return veche.test.server server
function test.stub_websocket(url, options) end

---@class veche.test.server
---@field url string
local server = {}

---Returns the next connection that the application has opened to this server. The application
---receives what is sent on it, and vice versa. Errors: the application opens no connection in time.
---@param options? { within?: number } Seconds by which the test's clock may advance until it arrives; 0 by default.
---@return veche.test.peer peer
function server:accept(options) end

---@class veche.test.peer: veche.test.client
---@field target string The complete URL that was requested.
---@field headers table<string, string> Headers of the handshake; names in lower case.

---Returns the HTTP requests that the application has made.
---@return veche.test.seen_request[] requests
function test.requests() end

---Returns the SQL statements that the application has executed, including those of transactions.
---@return {sql: string, values: any[], database: string?, host: string}[] queries
function test.queries() end

---Returns the commands that the application has sent to Redis: `{ "GET", "name" }`.
---@return string[][] commands
function test.commands() end

---Checks that two values are equal; tables are compared by content. In `expected`, `test.any`, `test.like` and functions
---match values.
---@param got any
---@param expected any
---@param words? string Prefix of the error message.
function test.equal(got, expected, words) end

---Checks that two values are not equal.
---@param got any
---@param unexpected any
---@param words? string
function test.differ(got, unexpected, words) end

---Checks that a value is neither nil nor false.
---@generic T
---@param value T
---@param words? string
---@return T value
function test.ok(value, words) end

---Fails the case.
---@param words? string
function test.fail(words) end

---Checks that a text matches a pattern. Returns the captures, or the match.
---@param text string
---@param pattern string A Lua pattern.
---@param words? string
---@return string ...
function test.match(text, pattern, words) end

---Checks that a function raises an error that matches `pattern`. Returns the error.
---@param run fun()
---@param pattern? string A Lua pattern.
---@return any failure
function test.fails(run, pattern) end

---Matches any value but nil, or any value of a type.
---@param kind? "string"|"number"|"boolean"|"table"
---@return any
function test.any(kind) end

---Matches a text by a pattern.
---@param pattern string A Lua pattern.
---@return any
function test.like(pattern) end

return test
