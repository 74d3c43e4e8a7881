-- `veche.base64`
local base64 = require("veche").base64
local check = require "check"
local t = {}

-- The test vectors of RFC 4648, section 10.
function t.vectors()
  local plain = ""
  for index, expected in ipairs { "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy" } do
    plain = ("foobar"):sub(1, index)
    check.equal(base64.encode(plain), expected)
    check.equal(base64.decode(expected), plain)
    local unpadded = expected:gsub("=", "")
    check.equal(base64.encode_url(plain), unpadded)
    check.equal(base64.decode_url(unpadded), plain)
    check.equal(base64.decode_url(expected), plain)
  end
  check.equal(base64.encode(""), "")
  check.equal(base64.decode(""), "")
end

function t.all_bytes()
  local bytes = {}
  for byte = 0, 255 do bytes[#bytes + 1] = string.char(byte) end
  local all = table.concat(bytes)
  check.equal(base64.decode(base64.encode(all)), all)
  check.equal(base64.decode_url(base64.encode_url(all)), all)
  check.equal(base64.encode("\251\255"), "+/8=")
  check.equal(base64.encode_url("\251\255"), "-_8")
end

function t.what_is_no_base64_is_told()
  for _, bad in ipairs { "Zg", "Zg=", "Zh==", "Z===", "Zm9v\n", "-_8=", "\0", "====", "é" } do
    local data, why = base64.decode(bad)
    check.equal(data, nil)
    check.equal(type(why), "string")
  end
  for _, bad in ipairs { "+/8", "Z", "Zh", "\255" } do
    check.equal(base64.decode_url(bad), nil)
  end
end

function t.texts_may_be_long()
  for _, length in ipairs { 147455, 147456, 147457, 196607, 196608, 196609, 400000 } do
    local data = ("abcdefg"):rep(length / 7 + 1):sub(1, length)
    check.equal(base64.decode(base64.encode(data)), data)
    check.equal(base64.decode_url(base64.encode_url(data)), data)
  end
  -- A long text is decoded in parts, but an error has the position in the whole text.
  local text = ("abcd"):rep(60000)
  for _, place in ipairs { 7, 196605, 196608, 196609, 239999 } do
    local value, why = base64.decode(text:sub(1, place) .. "*" .. text:sub(place + 2))
    check.equal(value, nil)
    check.is_true(why:find("offset " .. place, 1, true), why)
    check.equal(base64.decode(text:sub(1, place) .. "=" .. text:sub(place + 2) .. "abcd"), nil)
  end
end

function t.bad_arguments()
  for _, name in ipairs { "encode", "decode", "encode_url", "decode_url" } do
    check.fails("bad argument #1 to 'base64." .. name .. "': a string expected, not nil", base64[name])
    check.fails("a string expected, not table", base64[name], {})
    check.fails("a string expected, not number", base64[name], 5)
    check.survives(1, base64[name])
  end
end

return t
