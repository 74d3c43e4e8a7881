-- Notes over HTTP: a list, and each by its number. A request's handler returns a status, headers and a body; of
-- these, only the last is needed. A table is sent as JSON.
--
-- The notes are in this Lua's memory. That is one worker's memory (veche.toml says workers = 1), and it begins empty
-- after a restart and after a reload. What has to stay belongs into a database.

local veche = require "veche"
local json = veche.json

local NOTES_MAX = veche.config.notes_max or 1000
local TEXT_BYTES_MAX = 4096

local notes, count, last = {}, 0, 0

-- The text of a note as it was sent, or nil and what is wrong with it.
local function text_of(req)
  local body = req.json                     -- nil if it is no JSON
  if type(body) ~= "table" then return nil, "the body is not a JSON object" end
  local text = body.text
  if type(text) ~= "string" or text == "" then return nil, "\"text\" is missing, or is not a string" end
  if #text > TEXT_BYTES_MAX then return nil, "\"text\" is longer than " .. TEXT_BYTES_MAX .. " bytes" end
  return text
end

local function refuse(status, why) return status, { error = why } end

local collection, one = {}, {}

function collection.GET(req)
  -- An empty table alone would be an object: json.array makes it a list.
  local found = json.array()
  local wanted = req.query.contains
  for _, note in pairs(notes) do
    -- `true`: as it stands, not as a pattern that a stranger wrote.
    if not wanted or note.text:find(wanted, 1, true) then found[#found + 1] = note end
  end
  table.sort(found, function(a, b) return a.id < b.id end)
  return { notes = found, count = count }
end

function collection.POST(req)
  local text, why = text_of(req)
  if not text then return refuse(400, why) end
  if count >= NOTES_MAX then return refuse(507, "there are " .. NOTES_MAX .. " notes: delete one first") end
  count, last = count + 1, last + 1
  notes[last] = { id = last, text = text }
  return 201, { Location = "/notes/" .. last }, notes[last]
end

function one.GET(_, note) return note end

function one.PUT(req, note)
  local text, why = text_of(req)
  if not text then return refuse(400, why) end
  note.text = text
  return note
end

function one.DELETE(_, note)
  notes[note.id], count = nil, count - 1
  return 204
end

local app = {}

function app.request(req)
  local id = req.params.id
  if not id then return collection[req.method](req) end
  local note = notes[tonumber(id)]
  if not note then return refuse(404, "there is no note " .. id) end
  return one[req.method](req, note)
end

return app
