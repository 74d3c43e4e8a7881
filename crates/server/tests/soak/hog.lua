-- An application that allocates more memory than its limit.
return {
  message = function(conn)
    local list = {}
    while true do list[#list + 1] = ("x"):rep(1000) .. #list end
  end,
}
