-- balancer: gives each caller the next of a set of servers, round and round (EZK, §7.1).
-- There are any number of sets, by NAME.
--
--   put /balancer/servers/NAME/SERVER ADDRESS   adds a server; with a lease it leaves by
--                                               itself when it fails
--   del /balancer/servers/NAME/SERVER           removes it
--   get /balancer/next/NAME                     the next server's key and address, or
--                                               nothing if there is none
--   put /balancer/next/NAME ""                  the same as a put
--
--   /balancer/last/NAME                         the server that was given last
--
-- The next is the one behind the last in the order of the keys, not a number modulo how
-- many there are: nobody is left out when servers come and go.

local root = "/balancer/"

local servers, following, last = root .. "servers/", root .. "next/", root .. "last/"

local function next(request)
  local name = request.key:sub(#following + 1)
  local list = range(servers .. name .. "/")
  local before = get(last .. name) or ""
  local found = list[1]
  for _, server in ipairs(list) do
    if server.key > before then
      found = server
      break
    end
  end
  if found then put(last .. name, found.key) end
  return found
end

return {
  scope = { root },
  operations = { { op = "read", prefix = following }, { op = "put", prefix = following } },
  read = next,
  put = next,
}
