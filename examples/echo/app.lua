-- An application is a table of handlers, and Veche calls them. This one has a single handler.

local app = {}

-- For each message: its connection, its bytes, and "text" or "binary".
function app.message(conn, data, kind)
  conn:send(data, kind)
end

return app
