-- tuplespace: the operations of DepSpace (EZK, table 2) on tuples such as job,42,open.
-- A template is a tuple with * for fields that may be anything: job,*,open.
--
--   put /space/out TUPLE                adds the tuple, true; --lease ties it to a lease
--   get /space/rdp/TEMPLATE             reads a tuple that matches, or nothing
--   get /space/rdall/TEMPLATE           reads all that match
--   put /space/inp/TEMPLATE ""          removes a tuple that matches and answers it, or
--                                       nothing (a put: clients don't repeat it)
--   watch /space/rd/TEMPLATE            waits for a tuple that matches: the first event has
--                                       it, at once or when it comes
--   put /space/cas/TEMPLATE TUPLE       adds the tuple unless one matches; true or false
--   put /space/replace/TEMPLATE TUPLE   the tuple takes the place of one that matches; answers
--                                       that one, or nothing if there is none
--
--   /space/tuples/FIELD1/SEQUENCE       the tuples. A template with a first field is looked
--                                       for among those that have it
--   /space/waiting/TEMPLATE             somebody waits for such a tuple, which will be put
--                                       into /space/rd/TEMPLATE
--
-- Of several that match, it is the oldest with the lowest first field. Fields hold neither
-- commas nor slashes: say %2C and %2F.

local root = "/space/"

local tuples, waiting, rd = root .. "tuples/", root .. "waiting/", root .. "rd/"

local function matches(tuple, template)
  if #tuple ~= #template then return false end
  for i, field in ipairs(template) do
    if field ~= "*" and field ~= tuple[i] then return false end
  end
  return true
end

-- find returns up to n tuples.
local function find(text, n)
  local template, place, found = text:split(","), tuples, {}
  if template[1] ~= "*" then place = tuples .. template[1] .. "/" end
  for _, kv in ipairs(range(place)) do
    if matches(kv.value:split(","), template) then table.insert(found, kv) end
    if #found == n then break end
  end
  return found
end

local function out(text, lease)
  local tuple = text:split(",")
  put(tuples .. tuple[1] .. "/" .. string.format("%020d", revision()), text, lease)
  for _, kv in ipairs(range(waiting)) do
    local template = kv.key:sub(#waiting + 1)
    if matches(tuple, template:split(",")) then
      delete(kv.key)
      put(rd .. template, text)
    end
  end
end

local function take(template)
  local tuple = find(template, 1)[1]
  if tuple then delete(tuple.key) end
  return tuple and tuple.value
end

-- change answers out, inp, cas and replace.
local function change(request)
  local words = request.key:sub(#root + 1):split("/")
  local verb, template = words[1], words[2]
  if verb == "inp" then return take(template) end
  if verb == "cas" and find(template, 1)[1] then return false end
  local old = verb == "replace" and take(template)
  if verb == "replace" and not old then return nil end
  out(request.value, request.lease)
  return old or true
end

return {
  scope = { root },
  operations = {
    { op = "put", key = root .. "out" }, { op = "put", prefix = root .. "inp/" },
    { op = "put", prefix = root .. "cas/" }, { op = "put", prefix = root .. "replace/" },
    { op = "read", prefix = root .. "rdp/" }, { op = "read", prefix = root .. "rdall/" },
    { op = "block", prefix = rd },
  },
  put = change,
  read = function(request)
    local words = request.key:sub(#root + 1):split("/")
    if words[1] == "rdp" then return find(words[2], 1)[1] end
    return find(words[2], -1)
  end,
  block = function(request)
    local template = request.key:sub(#rd + 1)
    local tuple = find(template, 1)[1]
    if tuple then return tuple.value end
    delete(request.key) -- what somebody else has waited for
    create(waiting .. template, "")
    block(request.key)
  end,
}
