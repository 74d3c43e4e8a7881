-- `veche.json`
local json = require("veche").json
local check = require "check"
local t = {}

function t.whole_numbers_are_written_as_such()
  for number, text in pairs {
    [0] = "0", [-7] = "-7", [2 ^ 53] = "9007199254740992", [-2 ^ 53] = "-9007199254740992",
    [2 ^ 53 - 1] = "9007199254740991", [2 ^ 60] = "1152921504606846976", [1e20] = "100000000000000000000",
    [0.5] = "0.5", [1e21] = "1e+21",
  } do
    check.equal(json.encode(number), text)
  end
end

function t.whole_numbers_beyond_2_to_53_are_read_as_their_digits()
  for _, digits in ipairs {
    "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "100000000000000000000000001",
  } do
    check.equal(json.decode(digits), digits)
    local found = json.decode('{"id":' .. digits .. ',"list":[1, ' .. digits .. ' ],"text":"\\"' .. digits .. '"}')
    check.equal(found.id, digits)
    check.equal(found.list[1], 1)
    check.equal(found.list[2], digits)
    check.equal(found.text, '"' .. digits)
  end
end

function t.other_numbers_are_read_as_numbers()
  for text, number in pairs {
    ["9007199254740992"] = 2 ^ 53, ["-9007199254740992"] = -2 ^ 53, ["1e20"] = 1e20, ["1E+300"] = 1e300,
    ["12345678901234567890.5"] = 12345678901234567890.5, ["100000000000000000000e2"] = 1e22, ["0.25"] = 0.25,
  } do
    check.equal(json.decode(text), number)
  end
end

function t.keys_are_written_in_the_order_of_their_bytes()
  local object, keys = {}, {}
  for number = 1, 200 do
    local key = ("%03d"):format(number * 77 % 211)
    object[key] = number
    keys[number] = key
  end
  table.sort(keys)
  local place = 0
  for key in json.encode { a = object }:gmatch '"(%d+)":' do
    place = place + 1
    check.equal(key, keys[place])
  end
  check.equal(place, 200)
  check.equal(json.encode { b = 1, a = { d = 2, c = 3 } }, '{"a":{"c":3,"d":2},"b":1}')
end

return t
