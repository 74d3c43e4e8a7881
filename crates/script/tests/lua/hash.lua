-- `veche.hash` and `veche.hmac`
local veche = require "veche"
local check = require "check"
local hash, hmac = veche.hash, veche.hmac
local t = {}

function t.vectors()
  check.equal(hash.sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  check.equal(hash.sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
  check.equal(hash.sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d")
  check.equal(hash.md5("abc"), "900150983cd24fb0d6963f7d28e17f72")
  check.equal(hash.crc32("123456789"), 0xcbf43926)
  check.equal(hash.crc32(""), 0)
end

-- The test vectors of RFC 4231, case 2, and RFC 2202, case 2.
function t.keyed_vectors()
  local key, data = "Jefe", "what do ya want for nothing?"
  check.equal(hmac.sha256(key, data), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
  check.equal(hmac.sha1(key, data), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")
  -- The test vector of RFC 4231, case 6: a key longer than a block.
  check.equal(hmac.sha256(("\170"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First"),
    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
  check.equal(#hmac.sha256("", ""), 64)
end

function t.forms()
  check.equal(hash.sha1("abc", "base64"), "qZk+NkcGgWq6PiVxeFDCbJzQ2J0=")
  check.equal(#hash.sha256("abc", "raw"), 32)
  check.equal(#hash.md5("\0", "raw"), 16)
  check.equal(hash.sha1("abc", "raw"), veche.base64.decode("qZk+NkcGgWq6PiVxeFDCbJzQ2J0="))
  check.equal(hmac.sha1("k", "d", "base64"), veche.base64.encode(hmac.sha1("k", "d", "raw")))
end

function t.equals()
  check.equal(hmac.equals("abc", "abc"), true)
  check.equal(hmac.equals("abc", "abd"), false)
  check.equal(hmac.equals("abc", "ab"), false)
  check.equal(hmac.equals("", ""), true)
  check.equal(hmac.equals("a\0b", "a\0c"), false)
  local long = ("x"):rep(300000)
  check.equal(hmac.equals(long, ("x"):rep(300000)), true)
  for _, place in ipairs { 0, 131071, 131072, 299999 } do
    check.equal(hmac.equals(long, long:sub(1, place) .. "y" .. long:sub(place + 2)), false)
  end
  check.equal(hash.crc32(long), 3016239821)
end

function t.bad_arguments()
  check.fails("bad argument #1 to 'hash.sha256': a string expected, not nil", hash.sha256)
  check.fails("bad argument #2 to 'hash.md5': \"hex\", \"base64\" or \"raw\" expected", hash.md5, "x", "HEX")
  check.fails("bad argument #2 to 'hmac.sha1': a string expected", hmac.sha1, "key")
  check.fails("bad argument #3 to 'hmac.sha1': a string expected, not boolean", hmac.sha1, "key", "data", true)
  check.fails("bad argument #1 to 'hmac.equals'", hmac.equals, nil, "x")
  for _, name in ipairs { "sha256", "sha1", "md5", "crc32" } do check.survives(2, hash[name], "x", "hex") end
  for _, name in ipairs { "sha256", "sha1", "equals" } do check.survives(3, hmac[name], "x", "y", "raw") end
end

return t
