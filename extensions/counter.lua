-- counter: numbers that many clients add to, each with one call (EZK, figure 5).
--
--   /ctr, /ctr/NAME              the numbers, in decimal; missing while nobody has added
--   get /ctr-increment[/NAME]    adds 1 and answers the new number
--   put /ctr-increment[/NAME] N  adds N ("" is 1, and N may be negative); the new number
--                                comes back as the put's previous value
--
-- Clients repeat a get by themselves when a connection breaks, for they take it for a
-- read; then a number is left out. They don't repeat a put.

local root = "/ctr"

local verb = root .. "-increment"

local function add(key, amount)
  local number = root .. key:sub(#verb + 1)
  local n = tonumber(get(number) or 0)
  if not n then error(number .. " is no number") end
  put(number, n + amount)
  return n + amount
end

return {
  scope = { root, root .. "/" },
  operations = {
    { op = "read", key = verb }, { op = "read", prefix = verb .. "/" },
    { op = "put", key = verb }, { op = "put", prefix = verb .. "/" },
  },
  read = function(request) return add(request.key, 1) end,
  put = function(request)
    local amount = 1
    if request.value ~= "" then amount = tonumber(request.value) end
    if not amount then error("the value must be the number to add") end
    return add(request.key, amount)
  end,
}
