-- Tests which arguments the functions of `veche.http` accept and refuse. Responses are tested elsewhere, against
-- running servers.
local veche = require "veche"
local check = require "check"
local http = veche.http
local t = {}

local URL = "http://example.org/"

function t.urls()
  for _, name in ipairs { "get", "head", "delete", "post", "put", "patch" } do
    local first = "bad argument #1 to '" .. name .. "': "
    check.fails(first .. "a URL string expected", http[name])
    check.fails(first .. "a URL string expected", http[name], 7)
    check.fails(first .. "a URL string expected", http[name], {})
    local shape = first .. "a URL that begins with http:// or https:// expected"
    for _, bad in ipairs { "", "example.org", "ftp://a/", "file:///etc/passwd", "//a/", "http:/a", "javascript:1" } do
      check.fails(shape, http[name], bad)
    end
    local plain = first .. "a URL must be UTF-8 of at most 16384 bytes, without spaces and control characters"
    for _, bad in ipairs {
      "http://a/ b", "http://a/\r\nx: y", "http://a/\n", "http://a\0/", "http://a/\255", " http://a/", "http://a/\t",
      "http://a/\127", "http://a/\194\133", "http://" .. ("a"):rep(16384),
    } do
      check.fails(plain, http[name], bad)
    end
  end
  check.fails("bad option url to 'request': a URL string expected", http.request, {})
  check.fails("bad option url to 'request': a URL string expected", http.request, { url = 7 })
  check.fails("bad argument #1 to 'request': a table of options expected", http.request)
  check.fails("bad argument #1 to 'request': a table of options expected", http.request, URL)
end

function t.options()
  check.fails("bad argument #2 to 'get': a table of options expected", http.get, URL, 7)
  check.fails("bad argument #2 to 'post': a string, or a table with json, form or body, expected", http.post, URL, 7)
  check.fails("bad argument #3 to 'post': a table of options expected", http.post, URL, "x", 7)
  check.fails("bad options to 'get': there is no option \"timout\"", http.get, URL, { timout = 1 })
  check.fails("bad options to 'get': there is no option \"url\"", http.get, URL, { url = URL })
  check.fails("bad options to 'get': option names must be strings", http.get, URL, { 1 })
  local function bad(name, what, ...)
    for index = 1, select("#", ...) do
      local value = select(index, ...)
      check.fails("bad option " .. name .. " to 'get': " .. what, http.get, URL, { [name] = value })
    end
  end
  bad("timeout", "more than 0 and at most 86400 seconds", 0, -1, 0 / 0, 1 / 0, 86401, "x", {}, false)
  bad("connect_timeout", "more than 0 and at most 86400 seconds", 0, 0 / 0, "x")
  bad("redirects", "a whole number from 0 to 100", -1, 101, 0.5, "x", 0 / 0)
  bad("max_per_host", "a whole number from 1 to 65536", 0, -1, 65537, 1.5, {})
  bad("max_body", "a whole number from 0 to", -1, 0.5, 1 / 0, "1")
  bad("stream", "true or false", 1, "yes")
  bad("insecure", "true or false", 0, "no")
  bad("ca_file", "the path of a PEM file", 1, "", "a\0b", {})
  bad("query", "a table of fields, or a string without spaces,", 1, "a b", "a\nb", true)
  bad("query", "expected a table with a string, a number, a boolean or a list", { a = {{}} }, { a = tostring }, { [{}] = 1 })
  bad("form", "a table of fields", 1, "a=b")
  bad("form", "expected a table with a string, a number, a boolean or a list", { a = tostring }, { [true] = 1 })
  bad("body", "a string", 1, {}, true)
  check.fails("can't be represented in JSON", http.get, URL, { json = tostring })
  check.fails("NaN and infinity", http.post, URL, { json = 0 / 0 })
  check.fails("bad options to 'post': only one of json, form and body", http.post, URL, "x", { json = 1 })
  check.fails("bad options to 'post': only one of json, form and body", http.post, URL, { json = 1, form = {} })
  check.fails("bad option query to 'get': the URL is longer", http.get, URL, { query = { a = ("x"):rep(20000) } })
end

function t.methods()
  local what = "bad option method to 'request': expected a method such as GET or POST"
  for _, bad in ipairs { 7, "", "a b", "GET\r\n", "G\0T", "CONNECT", "connect", "TRACE", ("x"):rep(33), "ÄÖ" } do
    check.fails(what, http.request, { url = URL, method = bad })
  end
end

function t.headers()
  local what = "bad option headers to 'get': "
  local function bad(words, headers) check.fails(what .. words, http.get, URL, { headers = headers }) end
  bad("a table of header names and values expected", 7)
  bad("header names must be strings", { "x" })
  for _, name in ipairs { "", "a b", "a:b", "a\r\nb", "a\0b", "ä", "a\n" } do bad("", { [name] = "x" }) end
  for _, value in ipairs { "a\r\nx: y", "a\n", "\r", "a\0b", "\127", "\27" } do
    bad("x: line breaks and control characters are not allowed", { x = value })
    bad("x: line breaks and control characters are not allowed", { x = { "good", value } })
  end
  bad("x: a string, a number or a list of them expected", { x = tostring })
  bad("x: a string, a number or a list of them expected", { x = { {} } })
  for _, name in ipairs { "Connection", "content-length", "Transfer-Encoding", "upgrade", "TE", "Expect" } do
    bad(name:lower() .. " is set by the client itself", { [name] = "x" })
  end
  bad("at most 65536 bytes expected", { x = ("y"):rep(65536) })
end

function t.strange_values()
  for _, name in ipairs { "get", "head", "delete", "post", "put", "patch" } do
    local f = http[name]
    check.survives(1, f)
    check.survives(3, f, 7, {}, {})
  end
  for _, option in ipairs {
    "headers", "query", "body", "json", "form", "timeout", "redirects", "max_body", "stream", "ca_file", "method",
  } do
    for _, value in ipairs(check.strange) do
      -- The URL is empty, so that no request is sent even if the option is accepted.
      local ok, message = pcall(http.request, { url = "", [option] = value })
      check.equal(ok, false)
      check.equal(type(message), "string")
    end
  end
end

function t.where_nothing_can_wait()
  check.fails("can't wait here", table.sort, { 1, 2 }, function() http.get(URL) end)
end

return t
