-- PBKDF2 with HMAC-SHA256 (RFC 8018), one block of 32 bytes: makes guessing passwords slow for whoever steals the list.

local veche = require "veche"
local hmac, bxor = veche.hmac.sha256, bit.bxor

-- So many rounds, and then others have their turn: a login holds nobody up.
local ROUNDS_AT_ONCE = 500

-- Hexadecimal digits. Waits.
return function(password, salt, rounds)
  local last = hmac(password, salt .. "\0\0\0\1", "raw")
  local sum = { last:byte(1, 32) }
  for round = 2, rounds do
    last = hmac(password, last, "raw")
    for place = 1, 32 do sum[place] = bxor(sum[place], last:byte(place)) end
    if round % ROUNDS_AT_ONCE == 0 then veche.sleep(0) end
  end
  return (string.char(unpack(sum)):gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end
