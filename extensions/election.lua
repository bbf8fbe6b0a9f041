-- election: one leader at a time, the next one without a gap (EZK, figure 11).
--
--   watch /election/campaign/NAME-LEASE     the first event says that NAME-LEASE leads
--   del /election/candidates/NAME-LEASE     resigns, or gives the candidacy up
--   get /election/leader                    who leads; nothing while nobody does
--
-- LEASE, in hexadecimal, is the candidate's: when it ends, so does the candidacy. The
-- event's revision grows from leader to leader; what a leader writes elsewhere can be
-- fenced by it.
--
--   /election/candidates/ID                 the candidates, in the order of their creation
--   /election/campaign/ID                   there while ID leads, as is
--   /election/leader                        with ID in it

local root = "/election/"

local campaign, candidates, leader = root .. "campaign/", root .. "candidates/", root .. "leader"

local function appoint(id, lease)
  put(leader, id, lease)
  put(campaign .. id, "", lease)
end

local function oldest(list, ended)
  local first
  for _, one in ipairs(list) do
    if one.lease ~= ended and (not first or one.create_revision < first.create_revision) then first = one end
  end
  return first
end

return {
  scope = { root },
  operations = { { op = "block", prefix = campaign } },
  events = { { event = "deleted", prefix = candidates }, { event = "expired", prefix = candidates } },

  block = function(request)
    local id = request.key:sub(#campaign + 1)
    local words, lease = id:split("-"), request.lease
    if lease == 0 then lease = tonumber(words[#words], 16) end
    if (lease or 0) == 0 then error("the key must end in the candidate's lease: " .. campaign .. "NAME-LEASE") end
    if not get(candidates .. id) then
      monitor(candidates .. id, "", lease)
      if not get(leader) then appoint(id, lease) end
    end
    block(request.key)
  end,

  -- A leader that is a candidate stays. While a lease that holds a lot ends in steps, those of its candidates that are left
  -- can't be appointed: to try it fails, and the leader stays, whether or not it is a candidate.
  event = function(event)
    delete(campaign .. event.key:sub(#candidates + 1))
    local now = get(leader)
    if now then
      if get(candidates .. now) then return end
      delete(campaign .. now)
      delete(leader)
    end
    local next = oldest(range(candidates), event.type == "expired" and event.lease)
    if next then appoint(next.key:sub(#candidates + 1), next.lease) end
  end,
}
