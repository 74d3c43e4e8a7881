-- The same echo server as that of LAppS: each message is returned on its connection, as the same
-- kind.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
