package sim

import (
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
)

// In every third run clients register extensions, acknowledge, use, disable and
// remove them, beside everything else: a counter, a queue, one that counts events
// and one that exceeds its limits. Their keys are their own, below /x/; alice has
// registered them all, and bob may use what he has acknowledged. Where there are users, alice is one, with the
// role root: it is with her rights that handlers of events run.

const alice, bob = "alice", "bob"

// extensions are what alice registers. A comment is put before each source, so that
// no two are the same.
var extensions = map[string]string{
	"counter": `return {
  scope = { "/x/ctr" },
  operations = { { op = "put", key = "/x/inc" }, { op = "read", key = "/x/inc" } },
  put = function(r) local n = tonumber(get("/x/ctr") or "0") + 1 put("/x/ctr", n) return n end,
  read = function(r) local n = tonumber(get("/x/ctr") or "0") + 1 put("/x/ctr", n) return n end,
}`,
	"queue": `return {
  scope = { "/x/q/" },
  operations = { { op = "put", key = "/x/push" }, { op = "put", key = "/x/pop" } },
  put = function(r)
    if r.key == "/x/push" then
      put("/x/q/" .. string.format("%10d", revision()), r.value)
      return r.value
    end
    for i, kv in ipairs(range("/x/q/", 1)) do
      delete(kv.key)
      return kv.value
    end
  end,
}`,
	"events": `return {
  scope = { "/x/e/", "/x/log/", "/x/told" },
  events = { { event = "created", prefix = "/x/e/" }, { event = "deleted", prefix = "/x/e/" }, { event = "expired", prefix = "/x/e/" } },
  event = function(e)
    put("/x/log/" .. e.type, tonumber(get("/x/log/" .. e.type) or "0") + 1)
    if e.type == "expired" then notify("/x/told", e.key) end
  end,
}`,
	"hog": `return {
  scope = { "/x/hogged", "/x/told" },
  operations = { { op = "put", key = "/x/hog" }, { op = "put", key = "/x/tell" } },
  put = function(r) if r.key == "/x/tell" then notify("/x/told", r.value) return r.value end
    put("/x/hogged", r.value) if r.value:startswith("loop") then while true do end end return r.value end,
}`,
	"line": line,
}

// names are those of the extensions; a map has no order. Clients register the last one only where they wait.
var names = []string{"counter", "queue", "events", "hog", "line"}

// names are those of the extensions that clients register.
func (c *cluster) names() []string {
	if c.has.waits {
		return names
	}
	return names[:len(names)-1]
}

// hiddenKey is the one whose changes are kept from those who use the extension that counts them.
const hiddenKey = "/x/e/1"

// by makes a request one of a named client.
func by(who string, r request) request {
	r.who = who
	return r
}

// extended draws a request that has to do with extensions.
func (c *cluster) extended() request {
	who := pick(c.loop, []string{alice, bob})
	names := c.names()
	name := pick(c.loop, names)
	n := c.loop.rng.IntN(60)
	if c.has.waits && c.loop.chance(4) { // which is there at times
		name, n = "line", c.loop.rng.IntN(12)
	}
	if c.prepared < 2*len(names) { // at first each is registered and acknowledged
		name, n = names[c.prepared/2], []int{0, 3}[c.prepared%2]
		c.prepared++
	}
	switch {
	case c.has.steps && n < 2 && c.loop.chance(2):
		return strictly(&pb.PutRequest{Key: []byte(extension.LimitsKey), Value: fmt.Appendf(nil, `{"event_steps": %d}`, 2000+c.loop.rng.IntN(100))})
	case n < 2:
		source := fmt.Sprintf("-- %s\n%s", c.value(), extensions[name])
		if c.has.hides {
			source = strings.Replace(source, "event = function(e)\n", "event = function(e)\n    if e.key == \""+hiddenKey+"\" then suppress() end\n", 1)
		}
		return by(alice, strictly(&pb.PutRequest{Key: []byte(manager + name), Value: []byte(source)}))
	case n < 3:
		return by(alice, strictly(&pb.DeleteRangeRequest{Key: []byte(manager + name)}))
	case n < 6:
		value := pick(c.loop, []string{"", "once"})
		return by(bob, strictly(&pb.PutRequest{Key: []byte(manager + name + "/ack"), Value: []byte(value)}))
	case n < 7:
		return by(bob, strictly(&pb.DeleteRangeRequest{Key: []byte(manager + name + "/ack")}))
	case n < 8:
		state := pick(c.loop, []string{"enabled", "enabled", "disabled"})
		return by(who, strictly(&pb.PutRequest{Key: []byte(manager + name + "/state"), Value: []byte(state)}))
	}
	return c.call(who, n)
}

// call draws a request that an extension may handle, or an event.
func (c *cluster) call(who string, n int) request {
	switch {
	case c.has.waits && c.loop.chance(4):
		return c.wait(who, c.waiting())
	case c.has.steps && c.loop.chance(2):
	case n < 20:
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/inc"), Value: c.value()}))
	case n < 28:
		return by(who, strictly(&pb.RangeRequest{Key: []byte("/x/inc")}))
	case n < 37:
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/push"), Value: c.value()}))
	case n < 46:
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/pop"), Value: c.value()}))
	case n < 47:
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/tell"), Value: c.value()}))
	case n < 49:
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/hog"), Value: fmt.Appendf(nil, "%s%s", pick(c.loop, []string{"loop", "loop", "well"}), c.value())}))
	}
	return by(who, c.event())
}

// event is a request that changes a key whose changes are counted.
func (c *cluster) event() request {
	keys := 3
	if c.has.steps {
		keys = 60
	}
	key := fmt.Appendf(nil, "/x/e/%d", c.loop.rng.IntN(keys))
	if c.loop.chance(3) {
		return strictly(&pb.DeleteRangeRequest{Key: key})
	}
	r := &pb.PutRequest{Key: key, Value: c.value()}
	switch ids := c.leases(); {
	case len(ids) == 0:
	case c.has.steps:
		r.Lease = slices.Max(ids) // many keys on one
	case c.loop.chance(2):
		r.Lease = pick(c.loop, ids)
	}
	return strictly(r)
}
