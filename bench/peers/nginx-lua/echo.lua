-- Serves one connection: echoes every message unfragmented, with its original type.
local websocket = require "nginx.websocket.server"

local socket = websocket:new { timeout = 600000, max_payload_len = 1048576 }
if not socket then
    return ngx.exit(400)
end

-- The fragments of the current message so far, and its type.
local parts, part_kind

local function send(kind, data)
    if kind == "text" then
        return socket:send_text(data)
    end
    return socket:send_binary(data)
end

while true do
    local data, kind, more = socket:recv_frame()
    if not data then
        return
    end
    if kind == "close" then
        socket:send_close()
        return
    end
    local sent = true
    if kind == "ping" then
        sent = socket:send_pong(data)
    elseif kind == "text" or kind == "binary" then
        if more == "again" then
            parts, part_kind = { data }, kind
        else
            sent = send(kind, data)
        end
    elseif kind == "continuation" and parts then
        parts[#parts + 1] = data
        if more ~= "again" then
            sent = send(part_kind, table.concat(parts))
            parts = nil
        end
    end
    if not sent then
        return
    end
end
