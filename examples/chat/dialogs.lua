-- Dialogues and invitations, in memory. If Ann and Bob both want to talk, they have a dialogue; if
-- only one of them does, it is an invitation, which counts towards the limits of its sender alone.

local veche = require "veche"

local DAY = 24 * 3600

local dialogs = {
  MOST = 100,               -- of one user, including sent invitations: a connection may have 128 channels
  INVITATIONS_MOST = 20,    -- sent by one user and not accepted yet
  SHOWN = 50,               -- the number of received invitations in a list, the latest ones
  INVITATION_SECONDS = DAY, -- the lifetime of an invitation, the same as that of messages
  LEFT_SECONDS = DAY,       -- for this time after a leave or a refusal the other user can't invite again
}

-- Keys begin with a name and "/", so that the keys of one user can be listed. An entry holds the
-- wish of one user only, so that the order of writes by two workers does not matter.
local wants = veche.dict("chat:wants")   -- "ann/bob": Ann wants to talk to Bob
local asked = veche.dict("chat:asked")   -- "bob/ann": when Ann invited Bob, for the list of Bob's invitations
local left = veche.dict("chat:left")     -- "bob/ann": Bob has left Ann, or declined

local function key(one, other) return one .. "/" .. other end

-- Returns "accepted", "sent", "received" or nil.
function dialogs.state(me, other)
  local mine, theirs = wants:get(key(me, other)), wants:get(key(other, me))
  if mine then return theirs and "accepted" or "sent" end
  return theirs and "received" or nil
end

local function others(dict, me, most)
  local names = dict:keys(me .. "/", most)
  for place, name in ipairs(names) do names[place] = name:sub(#me + 2) end
  return names
end

-- Returns a list of { with = NAME, state = … }: dialogues, sent invitations, and the latest
-- received invitations.
function dialogs.of(me)
  local list, received = veche.json.array(), {}
  -- Two workers that add entries at the same moment may exceed `dialogs.MOST`, so up to 20 more
  -- entries are read.
  for _, other in ipairs(others(wants, me, dialogs.MOST + 20)) do
    list[#list + 1] = { with = other, state = dialogs.state(me, other) }
  end
  for _, other in ipairs(others(asked, me, 10000)) do
    local at = asked:get(key(me, other))
    if at and dialogs.state(me, other) == "received" then received[#received + 1] = { with = other, at = at } end
  end
  table.sort(received, function(one, two) return one.at > two.at end)
  for place = 1, math.min(#received, dialogs.SHOWN) do
    list[#list + 1] = { with = received[place].with, state = "received" }
  end
  return list
end

-- Returns true if a user has room for one more dialogue or invitation; otherwise nil and the
-- reason.
local function has_room(me, is_invitation)
  local names, sent = others(wants, me, dialogs.MOST), 0
  if #names >= dialogs.MOST then return nil, "You talk to " .. dialogs.MOST .. " people already. Leave a dialogue first." end
  if not is_invitation then return true end
  for _, other in ipairs(names) do
    if dialogs.state(me, other) == "sent" then sent = sent + 1 end
  end
  if sent < dialogs.INVITATIONS_MOST then return true end
  return nil, "You have invited " .. sent .. " people who have not answered yet."
end

-- Invites a user or accepts an invitation. Returns the new state, or nil and the error. The number
-- of invitations that the other user has received does not matter.
function dialogs.begin(me, other)
  local state = dialogs.state(me, other)
  if state == "accepted" or state == "sent" then return state end
  if left:get(key(other, me)) then return nil, other .. " does not want to talk to you today." end
  local is_invitation = state == nil
  local room, why = has_room(me, is_invitation)
  if not room then return nil, why end
  left:delete(key(me, other))
  if is_invitation then
    asked:set(key(other, me), veche.time.now(), dialogs.INVITATION_SECONDS)
    wants:set(key(me, other), true, dialogs.INVITATION_SECONDS)
    -- The other user may have sent an invitation at the same moment.
    if dialogs.state(me, other) == "sent" then return "sent" end
  end
  for _, two in ipairs { { me, other }, { other, me } } do
    wants:set(key(two[1], two[2]), true)
    asked:delete(key(two[1], two[2]))
  end
  return "accepted"
end

-- Leaves a dialogue, or declines or withdraws an invitation. Returns the previous state, or nil if
-- there was none.
function dialogs.leave(me, other)
  local state = dialogs.state(me, other)
  if not state then return nil end
  for _, two in ipairs { { me, other }, { other, me } } do
    wants:delete(key(two[1], two[2]))
    asked:delete(key(two[1], two[2]))
  end
  if state ~= "sent" then left:set(key(me, other), true, dialogs.LEFT_SECONDS) end
  return state
end

return dialogs
