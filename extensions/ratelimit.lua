-- ratelimit: so many per window of time, for all clients together. There are any number
-- of them, by NAME.
--
--   put /rate/limit/NAME N           how many a window has
--   put /rate/take/NAME/WINDOW N     takes N ("" is 1); answers how many are left, or
--                                    "refused" if there aren't so many
--
--   /rate/used/NAME                  the latest window, and how many it has used up
--
-- A WINDOW is a number that grows with time, such as the minutes since 1970. It comes from
-- the client because an extension has no clock: all replicas must decide the same,
-- whenever they do. (The other way to have time is a key with a lease. But a lease must be
-- granted by an extra call for each window, lasts seconds at least, and ends when a server
-- gets round to it.) A client whose clock is behind takes from the latest window, so that
-- no window is ever used twice; one whose clock is ahead makes the others early too, but
-- at the price of the window that it opened.

local root = "/rate/"

local limit, take, used = root .. "limit/", root .. "take/", root .. "used/"

local function number(text, what)
  local n = tonumber(text)
  if not n or n < 0 then error(what .. " must be a number, and not negative") end
  return n
end

return {
  scope = { root },
  operations = { { op = "put", prefix = take } },
  put = function(request)
    local words = request.key:sub(#take + 1):split("/")
    local name, window = words[1], number(words[2], "the WINDOW in " .. take .. "NAME/WINDOW")
    local most = number(get(limit .. name), "the value of " .. limit .. name)
    local amount, spent = 1, 0
    if request.value ~= "" then amount = number(request.value, "the value") end
    local latest = get(used .. name)
    if latest then
      latest = latest:split(" ")
      if tonumber(latest[1]) >= window then
        window, spent = tonumber(latest[1]), tonumber(latest[2])
      end
    end
    if spent + amount > most then return "refused" end
    put(used .. name, window .. " " .. spent + amount)
    return most - spent - amount
  end,
}
