-- queue: elements go to one consumer each, in the order in which they came (EZK,
-- figure 7). A consumer may wait for one; those that wait are served in turn.
--
--   put /queue/add ELEMENT   appends; answers how many elements now lie in the queue
--   get /queue/head          removes the oldest element and answers it, or nothing
--   put /queue/head ""       the same as a put, which clients don't repeat by themselves
--   get /queue/length        how many elements lie in the queue
--   watch /queue/take/ID     gives ID the oldest element, or the next that comes: the first
--                            event is the put of /queue/taken/ID with the element in it
--   del /queue/taken/ID      ID is done with its element; until then a take gives the same
--   del /queue/take/ID       ID doesn't wait any longer; an element that it has goes back
--
--   /queue/items/SEQUENCE    an element; the sequence is the revision at which it was added,
--                            or -REVISION-ID if it came back from ID: these are at the front
--   /queue/line/PLACE        ID of a consumer that waits, /queue/waiting/ID is its place
--
-- A consumer that can fail says take/ID/LEASE (in hexadecimal, or as metadata): when the
-- lease ends, its place in the line goes, and its element goes back.

local root = "/queue/"

local take, taken, items = root .. "take/", root .. "taken/", root .. "items/"
local line, waiting = root .. "line/", root .. "waiting/"

-- Sequences sort as revisions do.
local function sequence() return string.format("%020d", revision()) end

-- Several elements may come back at one revision: all that a lease has held.
local function returned(id) return "-" .. sequence() .. "-" .. id end

-- There are elements or there are consumers in the line, never both.
local function offer(name, element)
  local first = range(line, 1)[1]
  if not first then
    put(items .. name, element)
    return
  end
  delete(first.key)
  delete(waiting .. first.value)
  put(taken .. first.value, element, first.lease)
end

local function pop()
  local head = range(items, 1)[1]
  if head then delete(head.key) end
  return head and head.value
end

local function answer(request)
  if request.key == root .. "head" then return pop() end
  if request.op == "put" then offer(sequence(), request.value) end
  return count(items)
end

return {
  scope = { root },
  operations = {
    { op = "put", key = root .. "add" },
    { op = "put", key = root .. "head" }, { op = "read", key = root .. "head" },
    { op = "read", key = root .. "length" },
    { op = "block", prefix = take }, { op = "delete", prefix = take },
  },
  events = { { event = "expired", prefix = taken } },
  put = answer,
  read = answer,

  block = function(request)
    local words = request.key:sub(#take + 1):split("/")
    local id, lease = words[1], request.lease
    if words[2] then lease = tonumber(words[2], 16) or error("no lease in hexadecimal: " .. words[2]) end
    if not get(taken .. id) and not get(waiting .. id) then
      local element = pop()
      if element then
        put(taken .. id, element, lease)
      else
        put(waiting .. id, sequence(), lease)
        put(line .. sequence(), id, lease)
      end
    end
    block(taken .. id)
  end,

  delete = function(request)
    local id = request.key:sub(#take + 1):split("/")[1]
    local place, element = get(waiting .. id), get(taken .. id)
    if place then delete(line .. place) end
    delete(waiting .. id)
    delete(taken .. id)
    if element then offer(returned(id), element) end
    return (place or element) and 1 or 0
  end,

  event = function(event) offer(returned(event.key:sub(#taken + 1)), event.prev_value) end,
}
