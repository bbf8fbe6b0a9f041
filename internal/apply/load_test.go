package apply

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// ticking is a meter whose clock moves by a microsecond each time it is read.
type ticking struct {
	cost
	time int64
}

func (m *ticking) Now() int64 {
	m.time += 1000
	return m.time
}

// The work of extensions for a request is foretold from that for those before it, by the
// extension and the kind of request: an extension that is called, or that a change of the
// request's own wakes, with all that follows.
func TestTheLoadOfARequest(t *testing.T) {
	r := newRig(2)
	r.quiet, r.Meter = true, &ticking{}
	r.carry(t, sourcePut("calls", `return { scope={"/c/"}, operations={{op="put",key="/c/go"}}, put=function() for i=1,1000 do end end }`))
	r.carry(t, sourcePut("wakes", `return { scope={"/w/"}, events={{event="created",prefix="/w/a/"},{event="deleted",prefix="/w/"}}, event=function(e) put("/w/x/y", "1") end }`))
	r.carry(t, sourcePut("follows", `return { scope={"/w/"}, events={{event="modified",prefix="/w/x/"}}, event=function() for i=1,1000 do end end }`))
	put := func(key string) proto.Message { return &pb.PutRequest{Key: []byte(key)} }
	load := func(req proto.Message) Load {
		return r.Plan(kindOf(req), req, func() (string, int64) { return "alice", 0 }).Load
	}
	limits := extension.First.Defaults
	unknown := func(name string, steps int64) Load {
		return Load{name, throttle.Cost{Most: throttle.Charged(steps, int64(limits.WriteBytes))}}
	}
	del := &pb.DeleteRangeRequest{Key: []byte("/w/"), RangeEnd: []byte("/w0")}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/z")}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/w/a/1")}}},
	}}
	require.Zero(t, load(put("/z")))
	require.Zero(t, load(put("/w/b")), "nobody subscribes to what it does")
	for req, want := range map[proto.Message]Load{
		put("/c/go"): unknown("calls", limits.Steps), put("/w/a/1"): unknown("wakes", limits.EventSteps),
		del: unknown("wakes", limits.EventSteps), txn: unknown("wakes", limits.EventSteps),
	} {
		require.Equal(t, want, load(req), "%v", req)
	}
	r.carry(t, put("/c/go"))
	r.carry(t, put("/w/x/y"))
	r.carry(t, put("/w/a/1")) // its handler wakes the other one
	calls, wakes := load(put("/c/go")), load(put("/w/a/2"))
	require.Positive(t, calls.Likely)
	require.Less(t, calls.Most, unknown("calls", limits.Steps).Most)
	require.Greater(t, wakes.Most, calls.Most, "with what follows: its own run, a write, and a run as long as that call")
	require.Less(t, wakes.Most, 2*calls.Most)
	require.Equal(t, "wakes", wakes.Extension)
	require.Equal(t, unknown("follows", limits.EventSteps), load(put("/w/x/y")), "it has not been woken by a request")
	require.Equal(t, unknown("wakes", limits.EventSteps), load(del), "another kind of request")
	r.carry(t, del)
	require.Less(t, load(del).Most, unknown("wakes", limits.EventSteps).Most)
}

// What a call writes counts as time, whether or not its partitions meet for it: the log, which
// holds back other large writes, does not have it.
func TestWritesAreLoad(t *testing.T) {
	const written = 100 * 1000
	for name, scope := range map[string]string{"in a partition": `"/c/"`, "in several": `"/c/", "/d/a/", "/e/a/", "/f/a/"`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(2)
			r.quiet, r.Meter = true, &ticking{}
			r.carry(t, sourcePut("writes", `return { scope={`+scope+`}, operations={{op="put",key="/c/go"}},
				put=function() for i=1,100 do put("/c/" .. i, ("x"):rep(1000)) end end }`))
			req := &pb.PutRequest{Key: []byte("/c/go")}
			r.carry(t, req)
			load := r.Plan(kindOf(req), req, func() (string, int64) { return "alice", 0 }).Load
			require.Greater(t, load.Likely, int64(8*written))
			require.Less(t, load.Likely, int64(15*written))
			require.Greater(t, load.Most, load.Likely, "a step is taken for longer than it is")
		})
	}
}
