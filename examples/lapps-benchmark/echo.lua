-- An echo server like that of LAppS: each message is returned on its connection, as text or binary
-- like the original.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
