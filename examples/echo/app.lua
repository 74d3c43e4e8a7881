-- An application is a table of handlers, and Veche calls them. This one has a single handler.

local app = {}

-- Called for each message with its connection, its data, and its kind: "text" or "binary".
function app.message(conn, data, kind)
  conn:send(data, kind)
end

return app
