-- Returns an application that runs tests: a request with the name of a test gets its result, and
-- one without a name gets the names of all tests. Functions in `others` are requested by name too,
-- but are not tests.
return function(tests, others)
  local app = {}

  function app.request(req)
    local name = req.query.test
    if not name then
      local names = {}
      for name in pairs(tests) do names[#names + 1] = name end
      table.sort(names)
      return names
    end
    if others[name] then return others[name](req) end
    local ok, why = xpcall(tests[name], function(why) return debug.traceback(tostring(why)) end)
    return ok and 200 or 500, ok and "fine\n" or tostring(why)
  end

  return app
end
