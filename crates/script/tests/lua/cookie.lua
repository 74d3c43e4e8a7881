local check = require "check"
local veche = require "veche"

local t = {}

function t.is_written_as_a_header_wants_it()
  check.equal(veche.cookie("a", "b"), "a=b")
  check.equal(veche.cookie("__Host-id", ""), "__Host-id=")
  for options, expected in pairs {
    [{ path = "/x" }] = "; Path=/x",
    [{ domain = "example.com" }] = "; Domain=example.com",
    [{ max_age = 3600 }] = "; Max-Age=3600",
    [{ max_age = -1 }] = "; Max-Age=-1",
    [{ expires = 784111777 }] = "; Expires=Sun, 06 Nov 1994 08:49:37 GMT",
    [{ http_only = true }] = "; HttpOnly",
    [{ http_only = false, secure = false }] = "",
    [{ secure = true }] = "; Secure",
    [{ same_site = "strict" }] = "; SameSite=Strict",
    [{ same_site = "lax" }] = "; SameSite=Lax",
  } do
    check.equal(veche.cookie("a", "b", options), "a=b" .. expected)
  end
  local all = veche.cookie("id", "7", { same_site = "none", secure = true, path = "/", max_age = 1 })
  for _, part in ipairs { "; SameSite=None", "; Secure", "; Path=/", "; Max-Age=1" } do
    check.is_true(all:find(part, 1, true), part)
  end
end

function t.bad_characters_are_errors()
  for _, name in ipairs { "", "a b", "a=b", "a;b", "\0", "é", "a\r\nb" } do
    check.fails("bad argument #1 to 'cookie': a name", veche.cookie, name, "x")
  end
  for _, value in ipairs { "a b", "a;b", "a,b", '"a"', "a\\b", "\0", "é", "a\r\nSet-Cookie: b" } do
    check.fails("bad argument #2 to 'cookie': a value must be printable ASCII", veche.cookie, "a", value)
  end
  check.fails("bad argument #2 to 'cookie': a string expected", veche.cookie, "a")
  check.fails("at most 4096 bytes", veche.cookie, "a", ("x"):rep(5000))
  for options, words in pairs {
    [{ path = "x" }] = "path: expected a string that begins with /",
    [{ path = "/;x" }] = "path: expected a string",
    [{ path = "/\r\n" }] = "path: expected a string",
    [{ path = 1 }] = "path: expected a string",
    [{ domain = "a;b" }] = "domain: a string",
    [{ max_age = 0.5 }] = "max_age: a whole number",
    [{ max_age = "1" }] = "max_age: a whole number",
    [{ expires = -1 }] = "expires: seconds since 1970",
    [{ expires = 0 / 0 }] = "expires: seconds since 1970",
    [{ http_only = 1 }] = "http_only: true or false",
    [{ secure = "yes" }] = "secure: true or false",
    [{ same_site = "Lax" }] = "same_site: ",
    [{ same_site = "none" }] = "requires secure = true",
    [{ maxage = 1 }] = "the options are path,",
    [{ "x" }] = "the options are path,",
  } do
    check.fails(words, veche.cookie, "a", "b", options)
  end
  check.fails("bad argument #3 to 'cookie': a table of options expected", veche.cookie, "a", "b", "x")
  check.survives(3, veche.cookie, "a", "b", {})
end

return t
