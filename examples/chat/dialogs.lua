-- Dialogues and invitations, in memory as well. If Ann wants to talk to Bob, and Bob to Ann, it is a dialogue; if only one
-- of them does, it is an invitation, which counts for its sender alone.

local veche = require "veche"

local DAY = 24 * 3600

local dialogs = {
  MOST = 100,               -- of one person, with the invitations sent: a connection may have 128 channels
  INVITATIONS_MOST = 20,    -- sent by one person and not accepted yet
  SHOWN = 50,               -- the latest invitations received
  INVITATION_SECONDS = DAY, -- as long as its messages are kept
  LEFT_SECONDS = DAY,       -- after a leave or a refusal the other one can't invite again for this time
}

-- Keys begin with a name and "/", so that those of one user are found. Each holds one user's state only, so that the
-- order of two workers does not matter.
local wants = veche.dict("chat:wants")   -- "ann/bob": Ann wants to talk to Bob
local asked = veche.dict("chat:asked")   -- "bob/ann": since when, for Bob to find
local left = veche.dict("chat:left")     -- "bob/ann": Bob has left Ann, or declined

local function key(one, other) return one .. "/" .. other end

-- "accepted", "sent", "received" or nil.
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

-- { with = NAME, state = … }: dialogues and invitations that were sent, and the latest of those that were received.
function dialogs.of(me)
  local list, received = veche.json.array(), {}
  -- Some more than the limit, which two workers at the same moment may exceed.
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

-- Whether a user has room for one more; or nil and the reason.
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

-- Invites a user, or accepts an invitation: the state, or nil and the error. The number of invitations that the
-- other one has received does not matter.
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
    -- The other one may have invited at the same moment.
    if dialogs.state(me, other) == "sent" then return "sent" end
  end
  for _, two in ipairs { { me, other }, { other, me } } do
    wants:set(key(two[1], two[2]), true)
    asked:delete(key(two[1], two[2]))
  end
  return "accepted"
end

-- Leaves a dialogue, declines an invitation or withdraws one: returns the earlier state, or nil without one.
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
