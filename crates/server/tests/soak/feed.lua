-- The service of the soak test: it publishes, and fails now and then.
local veche, service = require "veche", {}

function service.run(instance)
  local number = 0
  while not veche.stopping(0.02) do
    number = number + 1
    veche.publish("ticks", instance .. " " .. number)
    if number == 50 and instance == 2 then error("now and then") end
  end
end

return service
