---@meta
-- The table that the script of an application returns: the functions that Veche calls. All of them may wait. Calls for
-- one connection are made one at a time and in order. An error ends only the call in which it occurs: it is logged, and
-- the client gets the close code 1011 or the status 500. Once a connection is closed, calls that wait in its handlers,
-- except `close`, fail with "the connection is closed"; a handler is ended after 64 such failures.

---@alias veche.headers table<string, string|number|string[]>

---Writes a part of a response's body; an empty string writes nothing. Parts are sent at the end of the turn. Waits while
---more than about 64 KiB are queued for a client that reads slowly. Not called for HEAD, 204 and 304.
---Errors: an argument that is not a string; "the client is gone"; a call where waiting is impossible.
---@alias veche.write fun(data: string): true

---@alias veche.body string|table|veche.file|fun(write: veche.write)

---@alias veche.respond fun(req: veche.req): (integer|veche.headers|veche.body), (veche.headers|veche.body|nil), (veche.body|nil)

---@class veche.app
---Called once per worker, before any other function; events that arrive meanwhile are queued.
---@field start? fun()
---Called before a WebSocket is accepted. Nil, true or a table accepts it; false refuses it with 403. To refuse it with
---another response, return a status from 300 to 599, alone, with a body, or with headers and a body.
---@field handshake? fun(req: veche.req): (boolean|integer|veche.accept|nil), (veche.headers|string|table|nil), (string|table|nil)
---A connection was opened.
---@field open? fun(conn: veche.conn)
---A complete message was received.
---@field message? fun(conn: veche.conn, data: string, kind: "text"|"binary")
---The messages queued for a slow client have been sent: there is room again.
---@field drain? fun(conn: veche.conn)
---The connection is closed. No other function is called for it afterwards.
---@field close? fun(conn: veche.conn, code: integer, reason: string)
---An HTTP request. Returns a body, a status from 200 to 599, or both; a table of headers may precede the body. The status
---is 200 by default. A table as the body is sent as JSON, a file (`veche.file`) by its content, and a function writes the
---body in parts. A body that is not written in parts may have up to 64 MiB: above that the client gets 500 and the error is
---logged. A router (`veche.router`) may be used in place of the function.
---@field request? veche.respond
---Events of channels and users, for the application that `[events]` names. They are delivered in
---order; the next batch follows when this call has ended. `lost` events before these were dropped
---because the queue was full.
---@field events? fun(events: veche.event[], lost: integer)
---An error of any handler or task that no `pcall` caught, after it was logged. It is called after the handler has ended
---and changes nothing for the client. Its own errors are only logged, as are further errors while 64 calls are running.
---@field error? fun(err: string, context: veche.error_context)
---The VM is about to end: newer code has replaced it, the application was removed from the configuration, or the server
---is shutting down. In the latter two cases its connections are still open, and close when this function has ended or
---has taken too long.
---@field stop? fun()
---Decides on requests of clients that speak Centrifugo's protocol, on routes with `handler = "centrifuge"` that lead to
---this application.
---@field centrifuge? veche.centrifuge

---Where an error occurred. Fields about the connection or the request are set if they are known; a task has those of the
---handler that created it.
---@class veche.error_context
---@field handler string "start", "handshake", "request", "connection", "events", "stop", "task" or "centrifuge.NAME".
---@field app string Name of the application in the configuration.
---@field worker integer Number of the worker, from 0.
---@field traceback string The error's text with the stack trace.
---@field connection? string The connection's id.
---@field user? string
---@field method? string
---@field path? string

---@class veche.event
---@field type "online"|"offline"|"occupied"|"vacated"|"joined"|"left"|"empty"
---@field channel? string
---@field user? string The user that connected, disconnected, joined or left.
---@field client? string The id of the user's connection.
---@field info? any Information about the connection, as other clients see it.
---@field at number Time of the event, in seconds since 1970.

---@class veche.accept
---@field user? string The user that the client is authenticated as.
---@field protocol? string The subprotocol to choose.
