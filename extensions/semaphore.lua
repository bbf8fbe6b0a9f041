-- semaphore: at most so many hold it at a time; those that wait get it in turn. With a
-- limit of 1 it is a lock. There are any number of them, by NAME.
--
--   put /semaphore/limit/NAME N        how many may hold it; may be changed at any time
--   put /semaphore/acquire/NAME/ID ""  tries; answers true if ID holds it now (--lease ties
--                                      the hold to a lease)
--   watch /semaphore/acquire/NAME/ID   waits; the first event is the put of
--                                      /semaphore/holders/NAME/ID: ID holds it
--   del /semaphore/holders/NAME/ID     releases it
--   del /semaphore/waiting/NAME/ID     waits no longer
--
-- Who can fail says acquire/NAME/ID/LEASE (in hexadecimal, or as metadata): the hold, or
-- the wait, ends with the lease. A holder's create revision grows from one to the next.

local root = "/semaphore/"

local acquire, limit = root .. "acquire/", root .. "limit/"
local holders, waiting = root .. "holders/", root .. "waiting/"

local function free(name)
  local n = tonumber(get(limit .. name))
  if not n then error("put the number of holders into " .. limit .. name) end
  return n - count(holders .. name .. "/")
end

-- Those that wait get what is free, in the order in which they came.
local function grant(name)
  local n = free(name)
  if n <= 0 then return end
  local queue = range(waiting .. name .. "/")
  table.sort(queue, function(a, b) return a.create_revision < b.create_revision end)
  for i = 1, math.min(n, #queue) do
    delete(queue[i].key)
    put(holders .. queue[i].key:sub(#waiting + 1), "", queue[i].lease)
  end
end

-- ask returns the key that ID holds the semaphore by. While anybody waits nothing is free.
local function ask(request, wait)
  local words = request.key:sub(#acquire + 1):split("/")
  if #words < 2 then error("the key must be " .. acquire .. "NAME/ID") end
  local name, lease = words[1], request.lease
  local who = name .. "/" .. words[2]
  if words[3] then lease = tonumber(words[3], 16) or error("no lease in hexadecimal: " .. words[3]) end
  if get(holders .. who) then return holders .. who end
  if free(name) > 0 then
    delete(waiting .. who) -- it may be there while a large lease ends in steps
    put(holders .. who, "", lease)
  elseif wait then
    create(waiting .. who, "", lease)
  end
  return holders .. who
end

return {
  scope = { root },
  operations = { { op = "put", prefix = acquire }, { op = "block", prefix = acquire } },
  events = {
    { event = "deleted", prefix = holders }, { event = "expired", prefix = holders },
    { event = "created", prefix = limit }, { event = "modified", prefix = limit },
    -- A large lease ends in steps: until its waiters are gone, too, those behind them get nothing, however they go.
    { event = "expired", prefix = waiting }, { event = "deleted", prefix = waiting },
  },
  put = function(request) return get(ask(request, false)) ~= nil end,
  block = function(request) block(ask(request, true)) end,
  event = function(event)
    local words = event.key:sub(#root + 1):split("/") -- holders or waiting NAME ID, or limit NAME
    grant(words[2])
  end,
}
