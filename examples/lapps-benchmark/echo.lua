-- The echo server, as LAppS's own: each message goes back on the connection it came on, as the kind it came.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
