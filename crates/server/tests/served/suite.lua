-- An application of tests: a request names one and learns how it went, or gets all names. `others` answer by name as
-- well, and are no tests.
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
    return ok and 200 or 500, ok and "fine\n" or why
  end

  return app
end
