package apply

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// place runs a command that carries out some requests, sets out for other rules, and
// carries out more requests, all at one revision. With early, what it did before is
// published by then. Unless the rig is held, the keys go all the way.
func (r *rig) place(stamp int64, before []proto.Message, early bool, rules []placement.Rule, after []proto.Message) {
	all := r.Placement().All()
	r.index++
	r.lock(all)
	x := execution{m: r.Machine, parts: all, local: several, spread: make([][]store.Change, len(r.Stores))}
	x.begin(stamp)
	carryOut := func(reqs []proto.Message) {
		for _, req := range reqs {
			switch q := req.(type) {
			case *pb.PutRequest:
				p := requestedPut(q)
				x.write(&p, kvwire.KeyValue{})
			case *pb.DeleteRangeRequest:
				x.deleteRange(q)
			}
		}
	}
	carryOut(before)
	if early {
		x.publish()
	}
	r.wanted = func(now *placement.Map) *placement.Map {
		if next := now.Assigned(r.slots).WithRules(rules); !next.Equal(now) {
			return next
		}
		return now
	}
	x.place()
	carryOut(after)
	x.publish()
	for _, s := range r.Stores {
		s.SetRev(x.rev)
		s.SetApplied(r.index, 1)
	}
	r.unlock(all)
	for !r.held && r.Placement().Transit() != nil {
		r.step(0, 1000, nil)
	}
}

// slotIn is a slot of a partition.
func slotIn(m *placement.Map, p int) int {
	for s := range placement.Slots {
		if s*m.Partitions()/placement.Slots == p {
			return s
		}
	}
	panic("no slot")
}

// storyPlace reads requests and "rule KEY pN" lines; what comes before the first
// rule is carried out before the move, what comes after the last behind it.
func (r *rig) storyPlace(d *datadriven.TestData) string {
	var before, after []string
	var rules []placement.Rule
	for _, line := range strings.Split(d.Input, "\n") {
		var key string
		var p int
		switch n, _ := fmt.Sscanf(line, "rule %s p%d", &key, &p); {
		case n == 2:
			rules = append(rules, placement.Rule{Key: key, Slot: slotIn(r.Placement(), p)})
		case line == "" || line == "no rules":
		case rules == nil:
			before = append(before, line)
		default:
			after = append(after, line)
		}
	}
	r.place(int64(number(d, "stamp")), (&parser{lines: before}).requests(0), d.HasArg("early"), rules, (&parser{lines: after}).requests(0))
	out := strings.Join(r.seen, "\n") + "\n"
	r.seen = nil
	return out
}

func (r *rig) storyStep(d *datadriven.TestData) string {
	var out []string
	reply := func(_ int, res Result) { out = append(out, formatResult(res)) }
	if d.Cmd == "copy" {
		r.move(int64(number(d, "stamp")), reply)
	} else {
		r.step(int64(number(d, "stamp")), number(d, "keys"), reply)
	}
	out = append(out, r.seen...)
	r.seen = nil
	if t := r.Placement().Transit(); t != nil {
		out = append(out, fmt.Sprintf("come to %q", t.Cursor))
	}
	return strings.Join(out, "\n") + "\n"
}

// Moves change nothing that a client can see: answers, reads of old revisions and
// the events of each revision are those of a machine in which nothing moves.
func TestMovesShowNowhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moving, still := newRig(3), newRig(3)
		if rapid.Bool().Draw(t, "apart") {
			moving, still = wishing(3, levelOfApart), wishing(3, levelOfApart)
			still.held = false
		}
		moving.quiet, still.quiet = true, true
		moving.held = rapid.Bool().Draw(t, "in pieces")
		gen := &history{model: newModel()} // knows plausible revisions
		stamp := int64(1)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			stamp++
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				moves(t, moving, still, stamp)
				checkPlaces(t, moving)
				continue
			case 1:
				moving.step(stamp, rapid.IntRange(1, 3).Draw(t, "keys"), nil)
				still.step(stamp, 1, nil)
				checkPlaces(t, moving)
				continue
			}
			req := request(gen).Draw(t, "request")
			got, want := moving.apply(stamp, req)[0], still.apply(stamp, req)[0]
			_, _ = gen.run(stamp, req)
			require.Equal(t, faultOf(want.Err), faultOf(got.Err))
			if want.Err == nil {
				same(t, want.Response, got.Response, "response to %v", req)
			}
		}
		compareReads(t, moving, still, stamp)
		require.Equal(t, eventsOf(still), eventsOf(moving))
	})
}

func moves(t *rapid.T, moving, still *rig, stamp int64) {
	var rules []placement.Rule
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/a/", "/b/", "/", "foo", "/a/x", "/b/y"}), 0, 4, rapid.ID).Draw(t, "rules") {
		rules = append(rules, placement.Rule{Key: k, Slot: rapid.IntRange(0, placement.Slots-1).Draw(t, "slot")})
	}
	moving.slots = nil
	if rapid.Bool().Draw(t, "other slots") {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for s := range placement.Slots {
			moving.slots = append(moving.slots, placement.Assignment{Slot: s, Partition: rng.IntN(3)})
		}
	}
	put := func(label string) []proto.Message {
		if !rapid.Bool().Draw(t, label) {
			return nil
		}
		key := rapid.SampledFrom([]string{"/a/x", "/b/y", "foo", "bar"}).Draw(t, "key")
		return []proto.Message{&pb.PutRequest{Key: []byte(key), Value: fmt.Append(nil, stamp)}}
	}
	before, after := put("before"), put("after")
	early := after == nil && rapid.Bool().Draw(t, "early")
	moving.place(stamp, before, early, rules, after)
	still.place(stamp, before, early, nil, after)
}

// checkPlaces: every key lies where the map says.
func checkPlaces(t *rapid.T, r *rig) {
	for p, s := range r.Stores {
		f, err := s.Range([]byte{0}, []byte{0}, 0, 0)
		require.NoError(t, err)
		for _, kv := range f.Kvs {
			require.Equal(t, r.Placement().Partition(kv.Key()), p, "%s", kv.Key())
		}
	}
}

func compareReads(t *rapid.T, moving, still *rig, last int64) {
	for at := max(moving.Machine.Compacted(), 1); at <= last; at++ {
		for _, req := range []*pb.RangeRequest{
			{Key: []byte{0}, RangeEnd: []byte{0}}, {Key: []byte("/a/"), RangeEnd: []byte("/a0")}, {Key: []byte("foo")}, {Key: []byte("/b/y")},
		} {
			got, err := moving.Range(req, moving.Parts(req), at, 0)
			require.NoError(t, err)
			want, err := still.Range(req, still.Parts(req), at, 0)
			require.NoError(t, err)
			same(t, want.Message(), got.Message(), "%v at %d", req, at)
		}
	}
}

// eventsOf are the events in order of revision, without their partitions.
func eventsOf(r *rig) map[int64][]string {
	all := map[int64][]string{}
	for _, e := range r.events {
		all[e.rev] = append(all[e.rev], fmt.Sprintf("%d %s", e.change.Sub, formatChange(e.change)))
	}
	for _, list := range all {
		// A revision's changes come partition by partition.
		slices.Sort(list)
	}
	return all
}

// Who was routed by an older map is told so, and nothing happens.
func TestRequestsByAnOlderMap(t *testing.T) {
	r := newRig(2)
	home := r.Placement().Partition([]byte("foo"))
	r.apply(2, &pb.PutRequest{Key: []byte("foo"), Value: []byte("1")})
	old := r.Placement()
	r.place(3, nil, false, []placement.Rule{{Key: "foo", Slot: slotIn(old, 1-home)}}, nil)

	_, err := r.Range(&pb.RangeRequest{Key: []byte("foo")}, placement.Of(home), 3, 0)
	require.ErrorIs(t, err, fault.Moved)
	_, err = r.ReadTxn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("foo")}}}, placement.Of(home), 3, 0)
	require.ErrorIs(t, err, fault.Moved)
	resp, err := r.Range(&pb.RangeRequest{Key: []byte("foo")}, old.All(), 2, 0)
	require.NoError(t, err, "more partitions than needed do no harm")
	require.Len(t, resp.Kvs, 1)
}
