-- barrier: lets nobody through before all have come (EZK, figure 9), and, for those
-- who want it, nobody out before all are done.
--
--   put /barrier/threshold N  how many must come
--   watch /barrier/enter/ID   ID is here; the first event is the put of /barrier/ready,
--                             when N are here
--   watch /barrier/leave/ID   ID is gone again; the first event comes when all are: then
--                             the barrier is closed and can be used again
--   del /barrier/ready and del --prefix /barrier/here/ close it without waiting
--
--   /barrier/here/ID          who has entered and not left
--   /barrier/ready            there while the barrier is open
--   /barrier/empty            put when the last one leaves
--
-- A participant that can fail says enter/ID/LEASE (in hexadecimal, or as metadata): it
-- counts as long as the lease lasts.

local root = "/barrier/"

local here, ready, empty = root .. "here/", root .. "ready", root .. "empty"
local enter, leave = root .. "enter/", root .. "leave/"

local function enterAs(id, lease)
  local threshold = tonumber(get(root .. "threshold"))
  if not threshold then error("put the number of participants into " .. root .. "threshold") end
  create(here .. id, "", lease)
  if count(here) >= threshold and create(ready, threshold) then delete(empty) end
  block(ready)
end

-- Whoever isn't here any more may go on as soon as the others are gone too.
local function leaveAs(id)
  delete(here .. id)
  if not get(ready) then return "empty" end
  if count(here) > 0 then
    block(empty)
    return
  end
  delete(ready)
  put(empty, "")
  return "empty"
end

return {
  scope = { root },
  operations = { { op = "block", prefix = enter }, { op = "block", prefix = leave } },
  events = { { event = "expired", prefix = here } },

  block = function(request)
    if request.key:startswith(leave) then return leaveAs(request.key:sub(#leave + 1)) end
    local words = request.key:sub(#enter + 1):split("/")
    local lease = request.lease
    if words[2] then lease = tonumber(words[2], 16) or error("no lease in hexadecimal: " .. words[2]) end
    enterAs(words[1], lease)
  end,

  event = function(event)
    if get(ready) and count(here) == 0 then
      delete(ready)
      put(empty, "")
    end
  end,
}
