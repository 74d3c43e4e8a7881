-- Tests of the chat: `veche test` in this folder runs them. Each test begins without members.
local test = require "veche.test"

-- Returns a client that has entered a room and received the confirmation, and the client's id.
local function enter(room, nick)
  local client = test.connect("/chat/" .. room)
  client:send { type = "join", nick = nick }
  local id = client:expect({ type = "joined", id = test.any("string"), nick = nick }).id
  client:expect { type = "join", id = id, nick = nick }
  return client, id
end

test.case("members of a room receive each other's messages", function()
  local ann, ann_id = enter("tea", "Ann")
  local bob, bob_id = enter("tea", "Bob")
  local eve = enter("coffee", "Eve")
  ann:expect { type = "join", id = bob_id, nick = "Bob" }
  bob:send { type = "say", text = "hello" }
  for _, client in ipairs { ann, bob } do
    client:expect { type = "say", id = bob_id, nick = "Bob", text = "hello" }
  end
  ann:send { type = "here", to = bob_id }
  bob:expect { type = "here", id = ann_id, nick = "Ann" }
  eve:expect_nothing()
end)

test.case("a leave is announced however the connection ended", function()
  local ann = enter("tea", "Ann")
  local bob, bob_id = enter("tea", "Bob")
  local eve, eve_id = enter("tea", "Eve")
  ann:take()
  bob:close()
  ann:expect { type = "leave", id = bob_id, nick = "Bob" }
  eve:drop()
  ann:expect { type = "leave", id = eve_id, nick = "Eve" }
end)

test.case("bad names are refused", function()
  for nick, why in pairs {
    [""] = "Type a name", ["Admin"] = "reserved", [" Ann"] = "blanks", ["a\1b"] = "control", [("x"):rep(21)] = "at most 20",
  } do
    local client = test.connect("/chat/tea")
    client:send { type = "join", nick = nick }
    client:expect { type = "refused", why = test.like(why) }
  end
  test.equal(test.published(), {})
end)

test.case("bad rooms are refused before they open", function()
  local client, refusal = test.connect("/chat/no%20room")
  test.equal(client, nil)
  test.equal(refusal.status, 400)
end)

test.case("what makes no sense changes nothing", function()
  local client = test.connect("/chat/tea")
  for _, message in ipairs { "no JSON", "[]", "null", '{"type":"nonsense"}', '{"type":"say","text":"too early"}' } do
    client:send(message)
  end
  client:expect_nothing()
  client:send { type = "join", nick = "Ann" }
  client:expect { type = "joined", id = test.any(), nick = "Ann" }
end)
