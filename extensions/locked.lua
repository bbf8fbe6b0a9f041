-- locked: keeps clients of one cluster from writing keys that a transaction over several
-- clusters has locked (client/compose, routes with Transactions), at one revision with the
-- check.
--
--   put /accounts/KEY VALUE    writes the key, or fails while it is locked; it can have no lease
--   del /accounts/KEY          deletes the key, or fails while it is locked
--   del --prefix /accounts/…   deletes all of these, or fails while one of them is locked
--
--   /stoa/txn/lock//accounts/KEY   a lock
--
-- Acknowledge it with the client id of compositions (compose.Config.ClientID): they check locks
-- themselves, in transactions, which it doesn't handle. Of other clients that have acknowledged
-- it, only puts and deletions are checked. It is strict: those that have not can't write the
-- keys at all.

local root = "/accounts/"

local locks = "/stoa/txn/lock/"

local function check(key)
  if get(locks .. key) then
    error(key .. " is locked by a transaction over several clusters; try again")
  end
end

return {
  scope = { root, locks .. root },
  operations = { { op = "put", prefix = root }, { op = "delete", prefix = root } },
  strict = true,
  put = function(request)
    check(request.key)
    if request.lease ~= 0 then
      error("a key that transactions over several clusters may lock can't have a lease")
    end
    put(request.key, request.value)
  end,
  delete = function(request)
    if request.range_end == "" then
      check(request.key)
      if delete(request.key) then return 1 end
      return 0
    end
    local deleted = 0
    for _, lock in ipairs(range(locks .. root)) do
      local key = lock.key:sub(#locks + 1)
      if key >= request.key and key < request.range_end then check(key) end
    end
    for _, kv in ipairs(range(root)) do
      if kv.key >= request.key and kv.key < request.range_end then
        delete(kv.key)
        deleted = deleted + 1
      end
    end
    return deleted
  end,
}
