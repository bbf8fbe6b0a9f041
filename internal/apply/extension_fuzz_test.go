package apply

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// FuzzExtensions grows extensions and requests from the bytes and has twins live
// through them: the second machine is restarted now and then, and Go's maps are in
// another order in it. Requests are planned before others are executed, come several
// in one entry, and concern leases, alarms, acknowledgements and limits as well.
func FuzzExtensions(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(binary.LittleEndian.AppendUint64(nil, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) { newFuzzed(t, b).live() })
}

// TestGrownExtensions does some of it each time, and wants most of what grows to be
// extensions and much of what is asked to succeed: otherwise it would show nothing.
func TestGrownExtensions(t *testing.T) {
	var all counts
	for seed := range uint64(100) {
		w := newFuzzed(t, binary.LittleEndian.AppendUint64([]byte("grown"), seed))
		w.live()
		all.add(w.counts)
	}
	t.Logf("%+v", all)
	require.Greater(t, all.Registered, 3*all.Refused)
	require.Greater(t, all.Calls, 400)
	require.Greater(t, all.Well, all.Calls/4)
	require.Greater(t, all.Failed, all.Calls/50)
	require.Greater(t, all.Limits, all.Calls/100)
	require.Greater(t, all.Moved, 20)
	require.Greater(t, all.Disabled, 2)
	require.Greater(t, all.TakenBack, 5)
}

// counts say what a life consisted of.
type counts struct{ Registered, Refused, Calls, Well, Failed, Limits, Disabled, TakenBack, Moved, Reloads int }

func (c *counts) add(o counts) {
	c.Registered += o.Registered
	c.Refused += o.Refused
	c.Calls += o.Calls
	c.Well += o.Well
	c.Failed += o.Failed
	c.Limits += o.Limits
	c.Disabled += o.Disabled
	c.TakenBack += o.TakenBack
	c.Moved += o.Moved
	c.Reloads += o.Reloads
}

type fuzzed struct {
	*twins
	growth
	counts  counts
	waiting []planned // routed, and not executed yet
}

type planned struct {
	req  proto.Message
	plan Plan
}

func newFuzzed(t testing.TB, b []byte) *fuzzed {
	g := growth{bytes: b, rnd: rand.New(rand.NewPCG(uint64(len(b)), 1))}
	if len(b) >= 8 {
		g.rnd = rand.New(rand.NewPCG(binary.LittleEndian.Uint64(b[len(b)-8:]), uint64(len(b))))
	}
	g.greedy = g.chance(4)
	return &fuzzed{twins: newTwins(t, 1+g.below(3)), growth: g}
}

const fuzzLimits = `{"steps": 3000, "bytes": 60000, "operations": 60, "keys": 12, "write_bytes": 1000, "events": 12, "event_steps": 20000, "depth": 8, "failures": 2}`

func (w *fuzzed) live() {
	if !w.chance(5) {
		w.plan(&pb.PutRequest{Key: []byte("/em/.limits"), Value: []byte(fuzzLimits)})
	}
	for range 2 {
		w.plan(&pb.LeaseGrantRequest{ID: int64(1 + w.below(3)), TTL: 10})
	}
	for range 2 + w.below(3) {
		w.plan(w.registration())
	}
	for range 20 + w.below(40) {
		w.plan(w.request())
		if w.chance(8) {
			w.counts.Reloads++
			w.reload()
		}
	}
	w.execute()
	w.requireEqual()
	w.reload()
	w.requireEqual()
	w.count()
}

// plan routes a request, and executes all that waits, now or later.
func (w *fuzzed) plan(req proto.Message) {
	kind := kindOf(req)
	client := who{pick(&w.growth, "", "alice", "bob"), int64(w.below(4))}
	p, logged := Plan{}, true
	switch {
	case w.chance(20):
		p = Plan{Parts: w.first.Parts(req)} // by a server that knows no extensions
		logged = kind != command.Range && kind != command.Watch
	case kind == command.Range || kind == command.Watch:
		p, logged = w.first.PlanRead(kind, req, client.caller)
	default:
		p = w.first.Plan(kind, req, client.caller)
	}
	if logged {
		w.waiting = append(w.waiting, planned{req, p})
	}
	if w.chance(2) || len(w.waiting) > 3 {
		w.execute()
	}
}

// execute applies what waits, as one entry or each by itself.
func (w *fuzzed) execute() {
	waiting := w.waiting
	w.waiting = nil
	for len(waiting) > 0 {
		n := 1
		if w.chance(3) {
			n = len(waiting)
		}
		e := command.Entry{}
		var parts placement.Set
		for _, p := range waiting[:n] {
			c := cmd(p.req)
			e.Commands = append(e.Commands, p.plan.Command(c.Kind, c.Body))
			parts |= p.plan.Parts
		}
		w.entries(&e, parts)
		waiting = waiting[n:]
	}
}

func (w *fuzzed) entries(e *command.Entry, parts placement.Set) {
	if len(w.first.Stores) > 1 {
		for _, s := range w.first.Stores {
			e.Stamp = max(e.Stamp, s.Rev()+1)
		}
	}
	results := make([]string, len(e.Commands))
	w.first.entry(e, parts, func(i int, r Result) {
		if results[i] = formatResult(r); strings.Contains(results[i], moved) {
			w.counts.Moved++
		} else if strings.Contains(results[i], "nothing of it was done") {
			w.counts.TakenBack++
		}
	})
	again := *e // as another server reads it from its log
	if w.chance(3) {
		w.second.entry(&again, parts, nil)
		return
	}
	w.second.entry(&again, parts, func(i int, r Result) { require.Equal(w.t, results[i], formatResult(r)) })
}

func (w *fuzzed) count() {
	w.counts.Registered = len(w.first.Extensions().All())
	for _, call := range w.costs[0].calls {
		w.counts.Calls++
		switch {
		case strings.HasSuffix(call, "<nil>"):
			w.counts.Well++
		case strings.Contains(call, "more than"), strings.Contains(call, "larger than"), strings.Contains(call, "nested"):
			w.counts.Limits++
		default:
			w.counts.Failed++
		}
	}
	for _, e := range w.first.events {
		switch {
		case !strings.HasPrefix(string(e.change.Kv.Key()), "/em/"):
		case strings.HasPrefix(string(e.change.Kv.Value()), "disabled: 2 requests"):
			w.counts.Disabled++
		case strings.HasPrefix(string(e.change.Kv.Value()), "return"):
			w.counts.Registered++
		}
	}
}

// registration is the put of a source, most of the time one that is right.
func (w *fuzzed) registration() *pb.PutRequest {
	req := sourcePut(w.name(), w.source())
	if w.chance(8) {
		req.Lease = int64(1 + w.below(3))
	}
	if w.first.Verify(req, 0) != nil {
		w.counts.Refused++
	}
	return req
}

func (w *fuzzed) name() string { return pick(&w.growth, "a", "b", "c", "a-b") }

func (w *fuzzed) request() proto.Message {
	key := []byte(w.key())
	switch w.below(30) {
	case 0, 1:
		return w.registration()
	case 2:
		return &pb.DeleteRangeRequest{Key: []byte("/em/" + w.name())}
	case 3, 4, 5:
		return &pb.PutRequest{Key: []byte("/em/" + w.name() + "/ack"), Value: []byte(pick(&w.growth, "", "", "once", "x"))}
	case 6:
		return &pb.PutRequest{Key: []byte("/em/" + w.name() + "/state"), Value: []byte(pick(&w.growth, "enabled", "enabled", "disabled"))}
	case 7:
		return &pb.DeleteRangeRequest{Key: []byte("/em/" + w.name() + "/" + pick(&w.growth, "ack", "state", "owner", "ack/alice"))}
	case 8:
		return &pb.LeaseGrantRequest{ID: int64(1 + w.below(3)), TTL: 10}
	case 9:
		return &pb.LeaseRevokeRequest{ID: int64(1 + w.below(3))}
	case 10:
		return w.rare()
	case 11, 12, 13:
		return &pb.DeleteRangeRequest{Key: key, PrevKv: true}
	case 14:
		return &pb.DeleteRangeRequest{Key: []byte(w.dir()), RangeEnd: []byte("/d0"), PrevKv: true}
	case 15, 16:
		return &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}},
			Success: []*pb.RequestOp{operationOf(&pb.DeleteRangeRequest{Key: key}), operationOf(&pb.PutRequest{Key: []byte(w.key()), Value: []byte("t")})},
			Failure: []*pb.RequestOp{operationOf(&pb.PutRequest{Key: key, Value: []byte("f")})},
		}
	case 17, 18, 19:
		return &pb.RangeRequest{Key: key}
	case 20:
		return &pb.RangeRequest{Key: []byte(w.dir()), RangeEnd: []byte("/b0"), Limit: int64(w.below(3))}
	case 21, 22:
		return &pb.WatchCreateRequest{Key: key}
	}
	return &pb.PutRequest{Key: key, Value: []byte(fmt.Sprint(w.below(20))), Lease: int64(max(0, w.below(8)-4)), PrevKv: w.chance(2)}
}

// rare are requests that concern everything.
func (w *fuzzed) rare() proto.Message {
	switch w.below(7) {
	case 0:
		return &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1}
	case 1, 2:
		return &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1}
	case 3:
		return &pb.CompactionRequest{Revision: int64(1 + w.below(20))}
	case 4:
		return &pb.DeleteRangeRequest{Key: []byte("/em/" + w.name()), RangeEnd: []byte(pick(&w.growth, "/em/b", "/em0", "\x00"))}
	case 5:
		return &pb.DeleteRangeRequest{Key: []byte("/em/.limits")}
	}
	return &pb.PutRequest{Key: []byte("/em/.limits"), Value: []byte(pick(&w.growth, fuzzLimits, `{"events": 2}`, `{"steps": 500, "failures": 1}`, `{"source": 10}`))}
}
