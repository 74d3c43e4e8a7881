-- Limits by name and by address. A counter begins with the first attempt and is reset after the
-- `seconds` of its limit.

local veche = require "veche"

local limits = {}

-- Logins from one address, successful or not: each costs the server time.
local OF_ADDRESS = { most = 60, seconds = 60 }
-- Limits of wrong passwords for one name: from one address, and from all addresses together.
local OF_NAME_AND_ADDRESS = { most = 10, seconds = 60 }
local OF_NAME = { most = 20, seconds = 900 }
-- Limit of wrong passwords for a name from devices with an earlier login. Wrong passwords from other devices do not
-- count here.
local OF_KNOWN_DEVICES = { most = 20, seconds = 60 }

local REGISTRATIONS = { most = 30, seconds = 60 }
local INVITATIONS = { most = 20, seconds = 3600 }
local INVITATIONS_OF_ADDRESS = { most = 40, seconds = 3600 }

-- Two dicts, so that filling the dict of unknown devices does not affect known devices.
local of_strangers = veche.dict("chat:tries")
local of_known = veche.dict("chat:tries of known devices")

-- Returns the /64 network of an IPv6 address, since one client may own all of it, or an IPv4
-- address without "::ffff:".
function limits.network(address)
  local v4 = address:match("^::ffff:(%d+%.%d+%.%d+%.%d+)$")
  if v4 or not address:find(":", 1, true) then return v4 or address end
  local head, tail = address:match("^(.-)::(.*)$")
  local groups = {}
  for group in (head or address):gmatch("%x+") do groups[#groups + 1] = group end
  -- "::" stands for the groups of zeros that are missing from the eight groups.
  local behind = {}
  for group in (tail or ""):gmatch("%x+") do behind[#behind + 1] = group end
  if head then
    for _ = 1, 8 - #groups - #behind do groups[#groups + 1] = "0" end
    for _, group in ipairs(behind) do groups[#groups + 1] = group end
  end
  return table.concat(groups, ":", 1, math.min(4, #groups)) .. "::/64"
end

-- Counts an attempt; returns whether it is within the limit. If the dict is full, the result is
-- false.
local function take(tries, what, limit)
  local is_counted, count = pcall(tries.update, tries, what, function(before)
    if before then return before + 1 end
    return 1, limit.seconds
  end)
  return is_counted and count <= limit.most
end

local function give_back(tries, what)
  tries:update(what, function(before) return before and before > 1 and before - 1 or nil end)
end

function limits.registration(remote) return take(of_strangers, "register " .. limits.network(remote), REGISTRATIONS) end

function limits.invitation(name, remote)
  return take(of_strangers, "invite " .. name, INVITATIONS)
    and take(of_strangers, "invite from " .. limits.network(remote), INVITATIONS_OF_ADDRESS)
end

-- Returns a login attempt, or nil if it exceeds a limit. `is_known` is true if the device has logged in with that name
-- before.
function limits.login(name, remote, is_known)
  local network = limits.network(remote)
  local tries = is_known and of_known or of_strangers
  local pair, all = "login " .. name .. " " .. network, "login " .. name
  -- The address is counted first, so that its limit also bounds the entries for invented names.
  if not take(tries, "login from " .. network, OF_ADDRESS) then return nil end
  if is_known then
    if not take(tries, all, OF_KNOWN_DEVICES) then return nil end
  elseif not (take(tries, pair, OF_NAME_AND_ADDRESS) and take(tries, all, OF_NAME)) then
    return nil
  end
  return {
    -- To be called if the password was right: subtracts this attempt from the count for the name, and deletes the count
    -- for the name and this address.
    forget = function()
      give_back(tries, all)
      tries:delete(pair)
    end,
    -- To be called if the password was not compared: subtracts this attempt from the counts for the
    -- name.
    give_back = function()
      give_back(tries, all)
      give_back(tries, pair)
    end,
  }
end

return limits
