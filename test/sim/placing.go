package sim

import (
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
)

// Extensions that do nothing but have a scope: registering one brings the keys
// of its scope into one partition, removing it returns them to their own. No
// client may notice.

const manager = "/em/"

var placers = []string{manager + "m0", manager + "m1"}

// register brings some keys together.
func (c *cluster) register() request {
	pool := append([]string{"/a/", "/b/y/k0"}, c.keys.dirs...)
	pool = append(pool, "s0", "s1")
	for _, p := range c.keys.pairs {
		pool = append(pool, p[0], p[1])
	}
	var scope []string
	for range 1 + c.loop.rng.IntN(4) {
		scope = append(scope, fmt.Sprintf("%q", pick(c.loop, pool)))
	}
	source := fmt.Sprintf(`return { -- %s
  scope = { %s },
  operations = { { op = "read", key = "/nowhere" } },
  read = function(r) return nil end,
}`, c.value(), strings.Join(scope, ", "))
	return strictly(&pb.PutRequest{Key: []byte(pick(c.loop, placers)), Value: []byte(source)})
}

// unregister removes the extension.
func (c *cluster) unregister() request {
	return strictly(&pb.DeleteRangeRequest{Key: []byte(pick(c.loop, placers))})
}

// moveLoop brings keys on their way, as node's does, but in steps of few keys. It
// doesn't wait until one has been made, so that some are proposed twice.
func (l *life) moveLoop() {
	l.after(l.between(0, 2*l.sv.c.plan.step), "move on", 0, l.moveLoop)
	if l.core.replica.Leading() {
		l.core.moveOn(1+l.sv.c.loop.rng.IntN(3), func(replica.Outcome) {})
	}
}

// moveOn makes a step of some keys, if there is a transit.
func (c *core) moveOn(keys int, done func(replica.Outcome)) {
	step := c.machine.Ahead(store.Budget{Keys: keys, Visits: 2 * keys})
	if step == nil {
		return
	}
	c.l.sv.c.stats.Steps++
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
		Parts:   c.machine.StepParts(step), System: true, Done: done,
	})
}

// language is the version that all servers register extensions for.
var language = strconv.Itoa(extension.Language)

// notesOf are the keys that putting an extension's source also puts, if they aren't
// there, and that deleting it deletes; none for any other key.
func notesOf(key []byte) []*pb.PutRequest {
	name, ok := strings.CutPrefix(string(key), manager)
	if !ok || strings.Contains(name, "/") || string(key) == extension.LimitsKey {
		return nil
	}
	return []*pb.PutRequest{
		{Key: []byte(manager + name + "/owner"), Value: []byte("anonymous")},
		{Key: []byte(manager + name + "/language"), Value: []byte(language)},
	}
}
