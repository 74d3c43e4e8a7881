-- Tests arguments that are refused before a connection is dialed. Tests with real servers are in
-- crates/server/tests/served/websocket.
local check = require "check"
local veche = require "veche"
local websocket = veche.websocket

local t = {}

local function contains(message, words)
  check.is_true(type(message) == "string" and message:find(words, 1, true), ("expected %q in %q"):format(words, tostring(message)))
end

local function both(url, options)
  local _, connect = pcall(websocket.connect, url, options)
  options = options or {}
  local _, open = pcall(websocket.open, url, options)
  return connect, open
end

local function refused(words, url, options)
  local connect, open = both(url, options)
  contains(connect, "'websocket.connect': " .. words)
  contains(open, "'websocket.open': " .. words)
end

function t.urls()
  for _, url in ipairs {
    "", "x", "http://a/", "ws://", "ws:///x", "ws://a:0/", "ws://a:70000/", "ws://a b/", "ws://a/\0", "ws://a/\r\nX: y",
    "ws://u:p@a/", "ws://a/#x", "ws://[::g]/", ("ws://a/"):rep(2000), "\255",
  } do
    local connect, open = both(url)
    contains(connect, "bad argument #1 to 'websocket.connect': ")
    contains(open, "bad argument #1 to 'websocket.open': ")
  end
  for _, url in pairs { 1, true, {}, print } do
    contains(both(url), "bad argument #1 to 'websocket.connect': a string expected")
  end
  contains(both(nil), "bad argument #1 to 'websocket.connect': a string expected")
end

function t.options()
  local url = "ws://127.0.0.1:1/"
  for name, values in pairs {
    timeout = { 0, -1, 1 / 0, 0 / 0, 3601, "1", {} },
    ping_interval = { -1, 1e9, "x" },
    pong_timeout = { 0, true },
    message_bytes_max = { 0, 1.5, 2 ^ 31, "x" },
    compression = { 1, "yes" },
    insecure = { 0, "false" },
    ca_file = { 1, "\0", "\255" },
    protocols = { 1, "a b", "a,b", "", { 1 }, { "a", "" }, { "ä" }, ("x"):rep(10000) },
    headers = {
      1, "X: y", { "X" }, { X = {} , Y = true }, { ["X\r\nY"] = "z" }, { [""] = "x" }, { X = "a\r\nY: b" }, { X = "a\0" },
      { Host = "x" }, { upgrade = "x" }, { ["Sec-WebSocket-Key"] = "x" }, { X = ("x"):rep(10000) }, { X = { 1 } },
    },
  } do
    for _, value in ipairs(values) do
      refused(name .. ": ", url, { [name] = value })
    end
  end
  contains(both(url, { tiemout = 1 }), 'there is no option "tiemout"')
  contains(both(url, { 1 }), "the names of options must be strings")
  check.fails('there is no option "onopen"', websocket.connect, url, { onopen = print })
  contains(both(url, 1), "bad argument #2 to 'websocket.connect': a table of options expected")
end

function t.callbacks()
  local url = "ws://127.0.0.1:1/"
  check.fails("a table of callbacks and options expected", websocket.open, url)
  for _, name in ipairs { "onopen", "onmessage", "onerror", "onclose" } do
    check.fails(name .. ": a function expected", websocket.open, url, { [name] = 1 })
  end
  for _, value in ipairs { 1, "yes", { min = 0 }, { min = 2, max = 1 }, { max = 1e9 }, { min = "1" }, { often = 1 }, { 1 } } do
    check.fails("reconnect: ", websocket.open, url, { reconnect = value })
  end
end

function t.objects()
  local ws = websocket.open("ws://127.0.0.1:1/", {})
  check.equal(ws.state, "connecting")
  check.equal(tostring(ws), "websocket ws://127.0.0.1:1/")
  check.equal(select(2, ws:send("x")), "closed")
  check.fails("a websocket has no field 'sned'", function() ws:sned() end)
  check.fails("a websocket's fields can't be set", function() ws.state = "open" end)
  check.fails("go to onmessage", ws.receive, ws)
  check.fails("a close code must be", ws.close, ws, 1005)
  check.fails("a close code must be", ws.close, ws, "1000")
  check.fails("at most 123 bytes", ws.close, ws, 1000, ("x"):rep(124))
  check.fails("a string expected", ws.send, ws, {})
  check.fails("not UTF-8, so it can't be a text message", ws.send, ws, "\255")
  check.fails('"text" or "binary" expected', ws.send, ws, "x", "json")
  check.equal(getmetatable(ws), false)
  for _, method in ipairs { "receive", "close", "drain" } do
    for _, self in pairs { {}, 1, "x", print, io and io.stdout or 0 } do
      check.fails("a websocket expected", ws[method], self)
    end
    check.fails("a websocket expected", ws[method])
  end
  check.fails("a connection expected", ws.send, {}, "x")
  check.equal(ws:close(), true)
  check.equal(ws.state, "closed")
  check.equal(select(2, ws:close()), "closed")
end

function t.nothing_waits_where_it_can_not()
  local words = "can't wait here"
  local function connect() websocket.connect("ws://127.0.0.1:1/") end
  check.fails(words, table.sort, { 1, 2 }, connect)
end

return t
