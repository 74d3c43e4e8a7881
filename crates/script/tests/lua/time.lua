-- `veche.time`
local veche = require "veche"
local check = require "check"
local time = veche.time
local t = {}

function t.clocks()
  check.equal(time.now(), 1700000000.125)
  local before = time.monotonic()
  check.equal(time.monotonic(), before)
  veche.sleep(2)
  check.is_true(math.abs(time.monotonic() - before - 2) < 1e-9)
end

function t.http_dates()
  check.equal(time.http(784111777), "Sun, 06 Nov 1994 08:49:37 GMT")
  check.equal(time.http(784111777.9), "Sun, 06 Nov 1994 08:49:37 GMT")
  check.equal(time.http(0), "Thu, 01 Jan 1970 00:00:00 GMT")
  check.equal(time.http(253402300799), "Fri, 31 Dec 9999 23:59:59 GMT")
  check.equal(time.http(), "Tue, 14 Nov 2023 22:13:20 GMT")
  -- The three date formats of RFC 9110, section 5.6.7.
  check.equal(time.parse_http("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777)
  check.equal(time.parse_http("Sunday, 06-Nov-94 08:49:37 GMT"), 784111777)
  check.equal(time.parse_http("Sun Nov  6 08:49:37 1994"), 784111777)
  for _, bad in ipairs { "", "now", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 31 Feb 1994 08:49:37 GMT", "\0", "\255" } do
    local seconds, why = time.parse_http(bad)
    check.equal(seconds, nil)
    check.equal(type(why), "string")
  end
end

function t.iso_dates()
  check.equal(time.iso(1700000000.125), "2023-11-14T22:13:20.125Z")
  check.equal(time.iso(1700000000), "2023-11-14T22:13:20.000Z")
  check.equal(time.iso(), "2023-11-14T22:13:20.125Z")
  check.equal(time.iso(1700000000.999999, 0), "2023-11-14T22:13:20Z")
  check.equal(time.iso(1700000000.5, 6), "2023-11-14T22:13:20.500000Z")
  check.equal(time.iso(0, 0), "1970-01-01T00:00:00Z")
  check.equal(time.iso(-1, 0), "1969-12-31T23:59:59Z")
  check.equal(time.iso(-62167219200, 0), "0000-01-01T00:00:00Z")
  check.equal(time.iso(253402207200, 0), "9999-12-30T22:00:00Z")
  check.equal(time.parse_iso("2023-11-14T22:13:20.125Z"), 1700000000.125)
  check.equal(time.parse_iso("2023-11-14T22:13:20Z"), 1700000000)
  check.equal(time.parse_iso("2023-11-14t23:13:20+01:00"), 1700000000)
  check.equal(time.parse_iso("1969-12-31T23:59:59.5Z"), -0.5)
  for _, bad in ipairs { "", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "\0", "\255", ("9"):rep(1000) } do
    local seconds, why = time.parse_iso(bad)
    check.equal(seconds, nil)
    check.equal(type(why), "string")
  end
  -- A long text is neither parsed nor repeated in the error.
  local long = "2023-11-14T22:13:20." .. ("0"):rep(1e6) .. "Z"
  local seconds, why = time.parse_iso(long)
  check.equal(seconds, nil)
  check.equal(why, "the date is longer than 256 bytes")
  check.equal(time.parse_http(long), nil)
end

function t.bad_arguments()
  for _, bad in ipairs { 0 / 0, 1 / 0, -1 / 0, 1e300, 253402300800, "0", {} } do
    check.fails("bad argument #1 to 'time.http': a number of seconds from 0 to 253402300799 expected", time.http, bad)
    check.fails("bad argument #1 to 'time.iso': a number of seconds", time.iso, bad)
  end
  check.fails("bad argument #1 to 'time.http'", time.http, -1)
  check.fails("bad argument #2 to 'time.iso': a whole number from 0 to 6 expected", time.iso, 0, 7)
  check.fails("bad argument #2 to 'time.iso'", time.iso, 0, 0.5)
  check.fails("bad argument #1 to 'time.parse_iso': a string expected, not nil", time.parse_iso)
  check.fails("bad argument #1 to 'time.parse_http': a string expected, not number", time.parse_http, 5)
  for _, name in ipairs { "now", "monotonic", "http", "parse_http", "iso", "parse_iso" } do
    check.survives(2, time[name])
  end
end

return t
