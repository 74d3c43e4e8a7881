-- The echo server, as LAppS's own: each message is returned on its connection, with its kind.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
