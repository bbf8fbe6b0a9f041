package sim

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
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
	c := l.core
	if !c.replica.Leading() {
		return
	}
	if step := c.machine.Ahead(1 + l.sv.c.loop.rng.IntN(3)); step != nil {
		l.sv.c.stats.Steps++
		c.replica.Submit(&replica.Write{
			Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
			Parts:   c.machine.Placement().All(), System: true, Done: func(replica.Outcome) {},
		})
	}
}

// registers says whether a key is an extension's source. Putting it also notes its
// owner, deleting it removes that.
func registers(key []byte) bool {
	name, ok := strings.CutPrefix(string(key), manager)
	return ok && !strings.Contains(name, "/")
}

func ownerOf(key []byte) []byte { return append(append([]byte(nil), key...), "/owner"...) }
