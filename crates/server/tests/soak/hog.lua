-- Takes all memory that it can get, and more.
return {
  message = function(conn)
    local list = {}
    while true do list[#list + 1] = ("x"):rep(1000) .. #list end
  end,
}
