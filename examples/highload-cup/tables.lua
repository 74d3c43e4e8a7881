-- The three tables, with their columns and the code that loads them. All workers share them.

local veche = require "veche"

local tables = {
  users = veche.table("cup.users", {
    key = "id:u32",
    columns = {
      email = "string(100)", first_name = "string(50)", last_name = "string(50)",
      gender = "enum(m,f)", birth_date = "i32",
    },
    indexes = { by_email = { "email", unique = true } },
  }),
  locations = veche.table("cup.locations", {
    key = "id:u32",
    columns = { place = "string", country = "string(50)", city = "string(50)", distance = "u32" },
  }),
  visits = veche.table("cup.visits", {
    key = "id:u32",
    columns = { location = "u32", user = "u32", visited_at = "i32", mark = "u8" },
    -- Queries read the visits of one user or of one place, ordered by date.
    indexes = { by_user = { "user", "visited_at" }, by_location = { "location", "visited_at" } },
  }),
}

local state = veche.dict("cup")
local LEASE = 10                  -- seconds without progress after which another worker takes over the loading

local function is_loaded()
  return state:get("loaded")
end

-- Loads the files of a folder or an archive. Every worker calls this function: one worker loads, and all wait for it.
-- If the load fails or code is reloaded meanwhile, a worker starts again, and "replace" overwrites the rows that were
-- loaded before.
local function load(from)
  while not is_loaded() do
    if state:add("loader", veche.worker, LEASE) then
      for _, kind in ipairs { "users", "locations", "visits" } do
        local began = veche.time.monotonic()
        local rows = tables[kind]:load_json(from, {
          files = kind .. "_*.json",
          conflict = "replace",
          progress = function() state:set("loader", veche.worker, LEASE) end,
        })
        local took = veche.time.monotonic() - began
        veche.log.info(("%d %s in %.1f s, %.1f MB"):format(rows, kind, took, tables[kind]:info().bytes / 1e6))
      end
      state:set("loaded", true)
    else
      veche.sleep(0.05)
    end
  end
end

return { tables = tables, load = load, is_loaded = is_loaded }
