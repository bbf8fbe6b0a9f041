-- rename: moves a key, with everything below it, to another name at one revision (EZK,
-- §7.2). What watches and reads see is the tree before or the tree after.
--
--   put /fs-rename/OLD NEW   makes /fs/OLD and /fs/OLD/… into /fs/NEW and /fs/NEW/…;
--                            answers how many keys that were
--
-- As POSIX has it, a single key replaces another one, nothing replaces a tree, a tree
-- replaces nothing, and none moves into itself. Values and leases are kept; the keys are
-- new ones, of version 1. One call can move as many keys as half of the limit on keys
-- written: 500, if /em/.limits doesn't say otherwise.

local root = "/fs"

local verb = root .. "-rename/"

return {
  scope = { root .. "/" },
  operations = { { op = "put", prefix = verb } },
  put = function(request)
    local old, new = root .. "/" .. request.key:sub(#verb + 1), root .. "/" .. request.value
    if old:endswith("/") or new:endswith("/") or request.value:startswith("/") then
      error("a name is missing, or begins or ends with a slash")
    end
    local node, below = stat(old), range(old .. "/")
    local moved = #below
    if node then moved = moved + 1 end
    if moved == 0 then error(old .. " does not exist") end
    if new == old then return moved end
    if new:startswith(old .. "/") then error("can't move " .. old .. " below itself") end
    if count(new .. "/") > 0 or get(new) and #below > 0 then error(new .. " exists") end
    if node then table.insert(below, node) end
    for _, n in ipairs(below) do
      delete(n.key)
      put(new .. n.key:sub(#old + 1), n.value, n.lease)
    end
    return moved
  end,
}
