---@meta veche.test
-- `require "veche.test"`: tests of an application. Only in files named `*_test.lua`, which `veche test` runs. Each case
-- runs in a world of its own: new VMs of the application, nobody connected, its own clock at 2026-01-01 00:00:00 UTC.
-- Whatever asks the world lets it go on until nothing is left to do at this time. Time itself stands still, except in
-- `test.advance`, `veche.sleep`, a `within`, and while `test.connect` and `test.request` wait for their answers.

---@class veche.test
local test = {}

---A case. Errors: in a case; bad arguments.
---@param name string
---@param run fun() It passes unless it raises an error, or a task or timer of it does that nobody joins, or the application
---logs one that `test.expect_error` does not expect.
---@param options? { services: boolean|string[]|nil } `services = false`: no service of the configuration runs beside it; a list:
---those with these names only.
function test.case(name, run, options) end

---A case that is counted but not run.
---@param name string
---@param run fun()
---@param options? { services: boolean|string[]|nil }
function test.skip(name, run, options) end

---Runs before each case of the file, in its world.
---@param run fun()
function test.before_each(run) end

---Runs after each case that has not failed.
---@param run fun()
function test.after_each(run) end

---@class veche.test.options
---@field headers? table<string, string|number|string[]>
---@field cookies? table<string, string>
---@field remote? string The client's IP address; 127.0.0.1 unless told.
---@field listener? string The name of a listener, or "internal"; the first public one unless told.
---@field within? number Seconds that the test's clock may go on meanwhile; 120 unless told.

---@class veche.test.connect_options: veche.test.options
---@field protocols? string|string[] Subprotocols to offer.

---Opens a WebSocket. Nil and the response if the handshake is refused. Errors: bad arguments; no answer in time; no such
---listener.
---@param target string Path and query: `/chat?user=ann`.
---@param options? veche.test.connect_options
---@return veche.test.client? client
---@return veche.test.response? refusal
function test.connect(target, options) end

---A client. What it was sent lies there in order until it is expected, received or taken.
---@class veche.test.client
---@field target string
---@field protocol? string The subprotocol that the server chose.
local client = {}

---Sends a message; a table is sent as JSON. It does not wait: messages of different clients that are sent without a wait
---between them arrive in an order that the seed decides, those of one client in their own. Errors: the connection is
---closed; bad arguments.
---@param data string|number|table
---@param kind? "text"|"binary"
---@return veche.test.client self
function client:send(data, kind) end

---@class veche.test.expect_options
---@field within? number Seconds that the test's clock may go on until it comes; 0 unless told.
---@field kind? "text"|"binary" Any unless told.

---The next message must be this: exactly that text; JSON of that table, in which `test.any`, `test.like` and functions
---accept values; or one that the function accepts. Errors: another message, none, or a close.
---@param expected? string|table|fun(data: string, kind: "text"|"binary"): any Nil: any message.
---@param options? veche.test.expect_options
---@return any message The text, or the value of the JSON where a table was expected.
function client:expect(expected, options) end

---Nothing has come. Errors: something has.
---@param options? { within?: number }
function client:expect_nothing(options) end

---The next thing is the end of the connection: 1006 where it was lost without a Close frame. Errors: another code or
---reason; a message; it is open.
---@param code? integer
---@param reason? string
---@param options? { within?: number }
---@return integer code
---@return string reason
function client:expect_close(code, reason, options) end

---The next message and its kind; nil and "nothing"; or nil, "closed", code and reason.
---@param options? { within?: number }
---@return string? data
---@return string kind
---@return integer? code
---@return string? reason
function client:receive(options) end

---All messages that have come so far, as a list; a close is taken with them.
---@return string[] messages
function client:take() end

---@return boolean is_open
function client:is_open() end

---Begins the closing handshake.
---@param code? integer 1000 to 4999; 1000 unless told.
---@param reason? string
function client:close(code, reason) end

---The connection is lost, without a Close frame.
function client:drop() end

---From now on it reads nothing of what it is sent; pings are answered no more either.
function client:pause() end

---It reads again.
function client:resume() end

---@class veche.test.request_options: veche.test.options
---@field path? string Path and query.
---@field method? string GET unless told, POST with a body.
---@field json? any The body as JSON, with its Content-Type.
---@field body? string

---@class veche.test.response
---@field status integer
---@field headers table<string, string> Names in lower case; several of one name joined by ", ", Set-Cookie by "\n".
---@field body string
---@field json any The body's value, nil if it is no JSON.

---One HTTP request on a connection of its own. Errors: bad arguments; no answer in time; no such listener.
---@param options string|veche.test.request_options `"/path"`, `"DELETE /path"`, or a table.
---@param more? veche.test.request_options With a text.
---@return veche.test.response response
function test.request(options, more) end

---Lets the test's clock go on: timers, sleeps, timeouts, pings, each at its time. Timers of the same millisecond fire in
---an order that the seed decides.
---@param seconds number 0 to 31536000.
function test.advance(seconds) end

---Lets the world go on until nothing is left to do at this time.
function test.settle() end

---Seconds since the case began, by the test's clock.
---@return number seconds
function test.now() end

---Publishes to a channel, as a back end does. Errors: a bad name; bad arguments.
---@param channel string
---@param data string|number|table A table is sent as JSON.
---@param kind? "text"|"binary"
---@return integer handed How many got it.
function test.publish(channel, data, kind) end

---Publishes to a user, as a back end does.
---@param user string
---@param data string|number|table
---@param kind? "text"|"binary"
---@return integer handed How many connections got it.
function test.push(user, data, kind) end

---What the application has published: to that channel, as a list of texts; or all of it.
---@param channel? string `#ann` is Ann's own.
---@return string[]|{channel: string, data: string, kind: "text"|"binary"}[] published
function test.published(channel) end

---What the application has logged.
---@return {level: "debug"|"info"|"warn"|"error", text: string}[] lines
function test.log() end

---The application must have logged an error that matches; it does not fail the case. Each expects one error.
---@param pattern string A Lua pattern.
---@return string text The error with its traceback.
function test.expect_error(pattern) end

-- Stubs stand in for other servers, for this case. Nothing leaves the process: what the application asks for without a
-- stub fails, and fails the case, in words that say which stub it wants. A later stub counts before an earlier one.
--
-- An answer is always the same, or a function's, which is called for each call, in a coroutine of its own. It may wait,
-- by the test's clock: so the application's time limits can be tested. An error in it fails the case.

---No answer, but that: what the application gets as an error.
---@class veche.test.failure
---@field fails "timeout"|"pool_full"|"unreachable"|"connection_lost"|"refused"|"invalid"|"broken" The kind, as `veche.error`
---tells it.
---@field words? string What the error says. A server's own: `{ fails = "refused", words = "1062 (23000): Duplicate entry" }`
---of MySQL, whose code `veche.mysql.code` finds; `{ fails = "refused", words = "WRONGTYPE …" }` of Redis.

---@class veche.test.answer
---@field status? integer 200 unless told.
---@field headers? table<string, string>
---@field body? string
---@field parts? string[] The body in the pieces in which it comes with `stream`.
---@field json? any The body as JSON, with its Content-Type.

---@class veche.test.seen_request
---@field method string
---@field url string
---@field headers table<string, string>
---@field body string

---Requests of the application (`veche.http`) to that address are answered so. Errors: bad arguments.
---@param method string Of requests; "*" is any.
---@param url string As it is asked for, its query included; a "*" at its end is any end.
---@param answer veche.test.answer|veche.test.failure|fun(request: veche.test.seen_request): veche.test.answer|veche.test.failure
function test.stub_http(method, url, answer) end

---The application finds the host at these addresses. The host of a `test.stub_websocket` needs none.
---@param host string
---@param addresses string|string[]|veche.test.failure
function test.stub_resolve(host, addresses) end

---Statements of the application (`veche.mysql`) are answered so: `{ { id = 1, name = "Ann" } }` is rows, `{}` none; a string,
---a number, a boolean or `veche.null` answers `db:value`; `{ affected = 1, last_id = 7 }` answers `db:execute`. A column that
---a row has not is NULL there. Transactions need no stub; those of "BEGIN", "COMMIT" and "ROLLBACK" make them fail.
---Errors: bad arguments. An answer that is none to that call fails the case.
---@param sql string White space counts as one space; a "*" at its end is any end, "*" alone any statement.
---@param answer any|veche.test.failure|fun(sql: string, ...: any): any The function gets the statement and its values.
function test.stub_mysql(sql, answer) end

---Commands of the application (`veche.redis`) are answered so: nil, a string, a number, a boolean, a list, or a table as
---HGETALL has it. Each command of a pipeline or a transaction is answered by its own stub. Errors: bad arguments.
---
---Subscriptions need no stub, and PUBLISH without one reaches them; those of "SUBSCRIBE name" make them fail.
---@param command string The name and its arguments, with a space between them: "GET name". A "*" at its end is any end.
---@param answer any|veche.test.failure|fun(command: string, ...: string): any
function test.stub_redis(command, answer) end

---Publishes to what the application has subscribed to on Redis.
---@param channel string
---@param data string|number|table A table is sent as JSON.
---@return integer handed How many subscriptions got it.
function test.redis_publish(channel, data) end

---@class veche.test.server_options
---@field protocol? string The subprotocol that the server chooses.
---@field status? integer It refuses, with that response.
---@field body? string Of that response.

---A WebSocket server that the application (`veche.websocket`) can open connections to, `wss://` too, without a certificate.
---With `fails` nobody is there; with "timeout" nothing ever answers. Errors: bad arguments.
---@param url string `ws://host:port/path?query` or `wss://…`; a "*" at its end is any end.
---@param options? veche.test.server_options|veche.test.failure
---@return veche.test.server server
function test.stub_websocket(url, options) end

---@class veche.test.server
---@field url string
local server = {}

---The next connection that the application has opened to it: a client whose part the application plays. What the client
---sends the application gets, and the other way round. Errors: none came.
---@param options? { within?: number } Seconds that the test's clock may go on until it comes; 0 unless told.
---@return veche.test.peer peer
function server:accept(options) end

---@class veche.test.peer: veche.test.client
---@field target string The whole address that was asked for.
---@field headers table<string, string> Of the handshake; names in lower case.

---The requests that the application has made.
---@return veche.test.seen_request[] requests
function test.requests() end

---The statements that the application has run, those of transactions included.
---@return {sql: string, values: any[], database: string?, host: string}[] queries
function test.queries() end

---The commands that the application has sent to Redis: `{ "GET", "name" }`.
---@return string[][] commands
function test.commands() end

---Both are equal: tables by what is in them. In what is expected `test.any`, `test.like` and functions accept values.
---@param got any
---@param expected any
---@param words? string Begins the error.
function test.equal(got, expected, words) end

---They are not.
---@param got any
---@param unexpected any
---@param words? string
function test.differ(got, unexpected, words) end

---Neither nil nor false.
---@generic T
---@param value T
---@param words? string
---@return T value
function test.ok(value, words) end

---@param words? string
function test.fail(words) end

---A text matches; its captures, or the match.
---@param text string
---@param pattern string A Lua pattern.
---@param words? string
---@return string ...
function test.match(text, pattern, words) end

---The function raises an error, which matches; the error.
---@param run fun()
---@param pattern? string A Lua pattern.
---@return any failure
function test.fails(run, pattern) end

---Accepts any value but nil, or any of that type.
---@param kind? "string"|"number"|"boolean"|"table"
---@return any
function test.any(kind) end

---Accepts a text that matches.
---@param pattern string A Lua pattern.
---@return any
function test.like(pattern) end

return test
