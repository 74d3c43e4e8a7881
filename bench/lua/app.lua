-- The measured application: echoes messages and answers HTTP requests with a fixed body.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
