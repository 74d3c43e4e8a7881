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

function t.objects_may_be_large()
  local object, count = {}, 10000
  for number = 1, count do object[("%05d"):format(number * 7919 % 10007)] = { tostring(number) } end
  local text = json.encode(object)
  local place, before = 0, ""
  for key, value in text:gmatch '"(%d+)":%["(%d+)"%]' do
    place = place + 1
    check.is_true(before < key, before .. " before " .. key)
    check.equal(value, object[key][1])
    before = key
  end
  check.equal(place, count)
  check.equal(text:sub(1, 1) .. text:sub(-1), "{}")
  object[7] = 1
  check.fails("an object's keys must be strings", json.encode, object)
end

function t.texts_may_be_long()
  -- Long texts are processed in parts, so some characters and escapes lie across the ends of the
  -- parts.
  for _, piece in ipairs { "a", "\195\164", "\240\159\152\128", "\1", '"' } do
    for shift = 0, 3 do
      local text = ("x"):rep(shift) .. piece:rep(100000)
      check.equal(json.decode(json.encode(text)), text)
    end
  end
  check.fails("longer than 8 MiB", json.encode, ("\1"):rep(2000000))
  check.fails("not UTF-8", json.encode, ("x"):rep(100000) .. "\255")
  local long = '["' .. ("\\n"):rep(700000) .. '"' .. (",1"):rep(1000) .. "]"
  local list = json.decode(long)
  check.equal(#list, 1001)
  check.equal(list[1], ("\n"):rep(700000))
  check.fails("json.decode: ", json.decode, long .. "x")
end

return t
