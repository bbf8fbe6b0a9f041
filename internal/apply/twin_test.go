package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/script"
)

// twins are two machines that are told the same. The second one builds its registry
// anew from the keys whenever it is asked to, no client waits for its answers, and its
// calls are profiled: all the same both must come to the same state, at the same cost (I6).
type twins struct {
	t      testing.TB
	first  *rig
	second *rig
	costs  [2]cost
}

// cost is what the extensions of a machine have used, call by call. It is the Meter
// of its machine.
type cost struct {
	calls   []string
	profile *script.Profile // of all calls; of the second machine only: it makes no difference
}

func (c *cost) Profile(string) *script.Profile { return c.profile }

func (c *cost) Undone(name string, rev int64, err error) {
	c.calls = append(c.calls, fmt.Sprintf("%s: the runs of %d are undone, %v", name, rev, err))
}

func (c *cost) Applied(*command.Entry, Tally, int64) {}

func (c *cost) Sampled(*placement.Spot, int64) {}

func (c *cost) Now() int64 { return 0 }

func (c *cost) Called(name string, _ int64, out *extension.Outcome, err error) {
	c.calls = append(c.calls, fmt.Sprintf("%s: %+v, %d writes, %d notices, %v", name, out.Usage, len(out.Writes), len(out.Notices), err))
}

func newTwins(t testing.TB, partitions int) *twins {
	w := &twins{t: t, first: newRig(partitions), second: newRig(partitions)}
	w.costs[1].profile = &script.Profile{}
	for i, r := range []*rig{w.first, w.second} {
		r.quiet = true
		r.Meter = &w.costs[i]
	}
	return w
}

// who is a client of the twins.
type who struct {
	client string
	lease  int64
}

func (c who) caller() (string, int64) { return c.client, c.lease }

// ask plans a request as a server does, and again when it has moved. The second
// result says that it went through the log.
func (w *twins) ask(c who, req proto.Message) (Result, bool) {
	for range 3 {
		kind := kindOf(req)
		var p Plan
		logged := true
		if kind == command.Range || kind == command.Watch {
			p, logged = w.first.PlanRead(kind, req, c.caller)
		} else {
			p = w.first.Plan(kind, req, c.caller)
		}
		if !logged {
			return Result{}, false
		}
		if r := w.tell(req, p); r.Err == nil || r.Err.Error() != moved {
			return r, true
		}
	}
	w.t.Fatalf("%v is moved again and again", req)
	return Result{}, true
}

const moved = "key has moved to another partition"

// tell has both machines execute a request.
func (w *twins) tell(req proto.Message, p Plan) Result {
	c := cmd(req)
	c = p.Command(c.Kind, c.Body)
	stamp := int64(0)
	if len(w.first.Stores) > 1 {
		for _, s := range w.first.Stores {
			stamp = max(stamp, s.Rev()+1)
		}
	}
	var result Result
	w.first.entry(&command.Entry{Stamp: stamp, Commands: []command.Command{c}}, p.Parts, func(_ int, r Result) { result = r })
	w.second.entry(&command.Entry{Stamp: stamp, Commands: []command.Command{c}}, p.Parts, nil)
	return result
}

// reload is a restart of the second machine.
func (w *twins) reload() { _ = w.second.LoadExtensions() }

// requireEqual compares all that a machine has.
func (w *twins) requireEqual() {
	w.t.Helper()
	require.Equal(w.t, w.first.everything(), w.second.everything())
	require.Equal(w.t, w.costs[0].calls, w.costs[1].calls)
	require.Equal(w.t, len(w.first.events), len(w.second.events))
}

func (r *rig) everything() string {
	return r.storyState() + r.storyKeys() + strings.Join(r.registered(), "\n")
}

// handler is the source of an extension whose handler of puts below /x/ is body.
func handler(body string) string {
	return `return { scope = { "/x/" }, operations = { { op = "put", prefix = "/x/" } }, put = function(request) ` + body + "\nend }"
}

// reaction is one whose handler of events below /x/ is body.
func reaction(body string) string {
	return `return { scope = { "/x/" }, events = { { event = "created", prefix = "/x/" }, { event = "modified", prefix = "/x/" }, { event = "deleted", prefix = "/x/" } }, event = function(e) ` + body + "\nend }"
}

func sourcePut(name, text string) *pb.PutRequest {
	return &pb.PutRequest{Key: extension.SourceKey(name), Value: []byte(text)}
}
