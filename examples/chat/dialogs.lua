-- Who talks to whom, in memory as well.

local veche = require "veche"

local dialogs = { MOST = 100 }       -- of one person: a connection may have 128 channels

local pairs_of = veche.dict("chat:dialogs")     -- "ann/bob" and "bob/ann": all of Ann's begin with "ann/"

-- The names of those with whom somebody talks.
function dialogs.of(name)
  local names = veche.json.array()
  for _, key in ipairs(pairs_of:keys(name .. "/", dialogs.MOST)) do names[#names + 1] = key:sub(#name + 2) end
  return names
end

-- Whether it is new; or nil and why it can't be.
function dialogs.begin(one, other)
  if pairs_of:get(one .. "/" .. other) then return false end
  for _, name in ipairs { one, other } do
    if #dialogs.of(name) == dialogs.MOST then return nil, name .. " talks to " .. dialogs.MOST .. " people already." end
  end
  pairs_of:set(one .. "/" .. other, true)
  pairs_of:set(other .. "/" .. one, true)
  return true
end

return dialogs
