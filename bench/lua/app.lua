-- The application under test: an echo, and a body for HTTP.
local app = {}

function app.message(conn, data, kind) conn:send(data, kind) end

function app.request() return "Hello, world!\n" end

return app
