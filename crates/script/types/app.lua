---@meta
-- The table that a script returns: the functions that Veche calls. All of them may wait. Calls for one connection come
-- one by one and in order. An error ends the call alone: it is logged, the client gets 1011 or 500. Once a connection is
-- gone, waits of its handlers but `close` fail with "the connection is closed"; after 64 of them a handler is ended.

---@alias veche.headers table<string, string|number|string[]>

---Writes a part of a response's body; an empty one is nothing. It is sent at the end of the turn. Waits where more than
---some 64 KiB are on their way to a client that reads slowly. Not called for HEAD, 204 and 304.
---Errors: not a string; "the client is gone"; where nothing can wait.
---@alias veche.write fun(data: string): true

---@alias veche.body string|table|veche.file|fun(write: veche.write)

---@alias veche.respond fun(req: veche.req): (integer|veche.headers|veche.body), (veche.headers|veche.body|nil), (veche.body|nil)

---@class veche.app
---Once per worker, before anything else; whatever comes meanwhile waits.
---@field start? fun()
---Before a WebSocket is accepted. Nil, true or a table accept; false is a 403; a status from 300 to 599, headers and a
---body, each but the last optional, refuse with that.
---@field handshake? fun(req: veche.req): (boolean|integer|veche.accept|nil), (veche.headers|string|table|nil), (string|table|nil)
---A connection was opened.
---@field open? fun(conn: veche.conn)
---A message came, whole.
---@field message? fun(conn: veche.conn, data: string, kind: "text"|"binary")
---What was sent to a slow client has left: there is room again.
---@field drain? fun(conn: veche.conn)
---The connection is gone: the last call for it.
---@field close? fun(conn: veche.conn, code: integer, reason: string)
---An HTTP request. A body, or a status from 200 to 599, headers and a body; each but the last may be left out. A table
---as the body is JSON; a file (`veche.file`) is sent; a function writes the body in parts. One that is not written in parts has
---at most 64 MiB: with more the client gets 500 and the error is logged. A router (`veche.router`) is as good as a function.
---@field request? veche.respond
---What has happened to channels and users, where the app is that of `[events]`: in order, the next ones when it is done with
---these. `lost` were lost before, for lack of room.
---@field events? fun(events: veche.event[], lost: integer)
---An error that no `pcall` has caught, of any handler or task, once it is logged. Runs by itself, when the handler is over:
---it changes nothing for the client. Its own errors are only logged, and so are others while 64 calls of it are under way.
---@field error? fun(err: string, context: veche.error_context)
---The VM ends: newer code has taken over, the app was taken out of the configuration, or the server stops. In the last two
---cases its connections are still there, and close once it has ended or has taken too long.
---@field stop? fun()
---What decides on what clients of Centrifugo's protocol ask, on routes with `handler = "centrifuge"` that lead to this app.
---@field centrifuge? veche.centrifuge

---Where an error came from. Of handlers of a connection or a request it has what is known of them.
---@class veche.error_context
---@field handler string "start", "handshake", "request", "connection", "events", "stop", "task" or "centrifuge.NAME".
---@field worker integer
---@field traceback string The error's words, and how it came there.
---@field connection? string Its id.
---@field user? string
---@field method? string
---@field path? string

---@class veche.event
---@field type "online"|"offline"|"occupied"|"vacated"|"joined"|"left"|"empty"
---@field channel? string
---@field user? string Who has come or gone.
---@field client? string The id of his connection.
---@field info? any What others see of the connection.
---@field at number Seconds since 1970.

---@class veche.accept
---@field user? string Who the client is.
---@field protocol? string The subprotocol that is answered.
