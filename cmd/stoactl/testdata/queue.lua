-- A queue: put /queue/push VALUE appends, put /queue/pop takes the oldest.
return {
  scope = { "/queue/" },
  operations = {
    { op = "put", key = "/queue/push" },
    { op = "put", key = "/queue/pop" },
  },
  put = function(request)
    if request.key == "/queue/push" then
      local n = tonumber(get("/queue/tail") or "0") + 1
      put("/queue/tail", n)
      put("/queue/items/" .. string.format("%019d", n), request.value)
      return nil
    end
    local first = range("/queue/items/", 1)[1]
    if not first then
      return nil
    end
    delete(first.key)
    return first.value
  end,
}
