package apply

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// between is a wish that moves all slots of a partition, or every other one, to another.
func between(m *placement.Map, from, to, each int) command.Wish {
	w := command.Wish{Op: command.Assign}
	for slot, p := range m.Table() {
		if int(p) == from && slot%each == 0 {
			w.Slots = append(w.Slots, placement.Assignment{Slot: slot, Partition: to})
		}
	}
	return w
}

// fill puts keys into all partitions.
func (r *rig) fill() {
	for i := range 20 {
		for _, key := range []string{"/d/%02d/k", "/d/%02d/l", "flat-%02d", "/a/b/%02d"} {
			r.apply(r.next(), &pb.PutRequest{Key: fmt.Appendf(nil, key, i)})
		}
	}
}

// The steps of a transit stand in the logs of the partitions that take part, and in those of all
// if the cluster's version is lower, if there are quotas, and at the end.
func TestStepsConcernThosePartitionsThatTakePart(t *testing.T) {
	r := wishing(4, levelOfApart)
	r.fill()
	require.NoError(t, r.wish(between(r.Placement(), 1, 3, 1)).Err)
	untouched := [...]uint64{0: r.applied(0), 2: r.applied(2)}
	for !r.step(r.next(), 3, nil).Last {
		require.Equal(t, untouched, [...]uint64{0: r.applied(0), 2: r.applied(2)})
		require.Equal(t, placement.Of(1)|placement.Of(3), r.Placement().Transit().Parts())
	}
	require.Nil(t, r.Placement().Transit())
	require.Equal(t, r.applied(1), r.applied(0), "the last step concerns all")
	require.Zero(t, r.Placement().SlotsOf(1))
	r.requirePlaces(t)

	early := wishing(4, levelOfApart-1)
	require.NoError(t, early.wish(between(early.Placement(), 1, 3, 1)).Err)
	require.Equal(t, early.Placement().All(), early.StepParts(&command.Step{}))
}

func (r *rig) applied(p int) uint64 {
	index, _ := r.Stores[p].Applied()
	return index
}

// requirePlaces: every key is where the map says, and nowhere else.
func (r *rig) requirePlaces(t require.TestingT) {
	for p, s := range r.Stores {
		s.Sizes([]byte{0}, []byte{0}, func(key []byte, _ int) {
			require.Equal(t, r.Placement().Partition(key), p, "%s", key)
		})
	}
}

// A step that doesn't stand in all logs that it concerns has no effect.
func TestStepsOfTooFewPartitions(t *testing.T) {
	g := guard(t, 4)
	r := g.rig
	list := *r.Membership()
	list.Level = levelOfApart
	r.LoadMembership(&list, r.Configurations())
	w := between(r.Placement(), 1, 3, 1)
	r.held = true
	require.NoError(t, r.everywhere(command.Command{Kind: command.Place, User: auth.Own, Body: w.AppendTo(nil)}).Err)
	step := &command.Step{To: []byte("/d/")}
	last := command.Step{Last: true}
	try := func(step *command.Step, parts placement.Set) (res Result) {
		e := command.Entry{Stamp: r.next(), Commands: []command.Command{{Kind: command.Move, Body: step.AppendTo(nil)}}}
		r.execute(&e, parts, func(_ int, got Result) { res = got })
		return res
	}
	before, taking := r.Placement(), r.Placement().Transit().Parts()
	require.ErrorIs(t, try(step, placement.Of(0)|placement.Of(1)).Err, fault.Moved)
	require.ErrorIs(t, try(&last, taking).Err, fault.Moved)
	require.Same(t, before, r.Placement())
	g.stamp = r.next()
	g.quota(auth.Quota{Prefix: "/d/", Limits: auth.Limits{Keys: 10}})
	require.ErrorIs(t, try(step, taking).Err, fault.Moved, "the quota is divided among all")
	require.Same(t, before, r.Placement())
	require.Equal(t, r.Placement().All(), r.StepParts(step))
	require.NoError(t, try(step, r.Placement().All()).Err)
	require.Equal(t, step.To, r.Placement().Transit().Cursor)
}

// Below the level, no map says that its steps are apart: a transit under way goes on with all.
func TestATransitGoesOnBelowItsLevel(t *testing.T) {
	r := wishing(4, levelOfApart)
	r.fill()
	require.NoError(t, r.wish(between(r.Placement(), 1, 3, 1)).Err)
	step := *r.step(r.next(), 3, nil)
	require.NoError(t, r.lower(levelOfApart-1).Err)
	tr := r.Placement().Transit()
	require.False(t, tr.Apart)
	require.Equal(t, step.To, tr.Cursor)
	require.Equal(t, r.Placement().All(), r.StepParts(&command.Step{}))
	r.arrive()
	r.requirePlaces(t)
	require.Zero(t, r.Placement().SlotsOf(1))
}

// apart are two machines that are told the same, but for the steps of a transit, which only the
// first one makes: it is what two servers are whose partitions have come differently far.
type apart struct{ moving, behind *rig }

func (a *apart) both(do func(r *rig)) { do(a.moving); do(a.behind) }

// Nothing that partitions execute that take no part in a transit depends on its cursor.
func TestOthersExecuteAlikeWhereverTheCursorIs(t *testing.T) {
	executed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := &apart{wishing(4, levelOfApart), wishing(4, levelOfApart)}
		gen := &history{model: newModel()}
		a.both(func(r *rig) {
			for i, key := range someKeys {
				if key != "" {
					r.apply(r.next(), &pb.PutRequest{Key: []byte(key), Value: fmt.Append(nil, i)})
				}
			}
			r.apply(r.next(), &pb.LeaseGrantRequest{ID: 1, TTL: 10})
		})
		began := a.moving.next()
		from := rapid.IntRange(0, 3).Draw(t, "from")
		to := (from + rapid.IntRange(1, 3).Draw(t, "to")) % 4
		w := between(a.moving.Placement(), from, to, rapid.IntRange(1, 2).Draw(t, "each"))
		if rapid.IntRange(0, 3).Draw(t, "pin") == 0 {
			w = command.Wish{Op: command.Pin, Key: "/a/b/", Partition: (a.moving.Placement().Partition([]byte("/a/b/")) + 1) % 4}
		}
		a.both(func(r *rig) { require.NoError(t, r.wish(w).Err) })
		taking := a.moving.Placement().Transit().Parts()
		others := a.moving.Placement().All() &^ taking
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
				a.move(rapid.IntRange(1, 10).Draw(t, "keys"))
				continue
			}
			req := request(gen).Draw(t, "request")
			parts := a.moving.Parts(req)
			if parts&taking != 0 { // nevertheless, as a server might that routed it by an older map
				parts = placement.Set(rapid.Uint64().Draw(t, "parts")) & others
			}
			if parts == 0 {
				parts = others
			}
			err := a.execute(t, req, parts)
			if err == nil {
				executed++
			} else {
				refused++
			}
		}
		for p := range others.Each() {
			require.Equal(t, dumpStore(a.behind, p, began), dumpStore(a.moving, p, began), "partition %d", p)
		}
		a.moving.requirePlaces(t)
		a.behind.requirePlaces(t)
	})
	require.Positive(t, executed)
	require.Positive(t, refused)
}

// move makes a step on the first machine, unless it is the last.
func (a *apart) move(keys int) {
	if s := a.moving.Ahead(store.Budget{Keys: keys, Visits: keys}); s != nil && !s.Last {
		a.moving.step(a.moving.next(), keys, nil)
	}
}

// execute has both machines execute a request in partitions that take no part, and compares the
// results.
func (a *apart) execute(t *rapid.T, req proto.Message, parts placement.Set) error {
	stamp := max(a.moving.next(), a.behind.next())
	e := command.Entry{Stamp: stamp, Commands: []command.Command{cmd(req)}}
	var results []Result
	a.both(func(r *rig) {
		r.execute(&e, parts, func(_ int, res Result) { results = append(results, res) })
	})
	got, want := results[0], results[1]
	require.Equal(t, faultOf(want.Err), faultOf(got.Err), "%v in %v", req, parts)
	require.Equal(t, want.Rev, got.Rev)
	if want.Err == nil {
		same(t, want.Response, got.Response, "response to %v in %v", req, parts)
	}
	return want.Err
}

// dumpStore has the states of a partition from a revision on.
func dumpStore(r *rig, p int, from int64) (out string) {
	s := r.Stores[p]
	for rev := max(from, s.Compacted()); rev <= s.Rev(); rev++ {
		f, err := s.Range([]byte{0}, []byte{0}, rev, 0)
		out += fmt.Sprintf("at %d: %v %d\n", rev, err, f.Count)
		for _, kv := range f.Kvs {
			out += formatKv(kv.Message()) + "\n"
		}
	}
	return out
}

// A range may be known more precisely in two parts than as a whole. Where the cursor divides it
// makes no difference to partitions that take no part.
func TestARangeThatTheCursorDivides(t *testing.T) {
	r := wishing(8, levelOfApart)
	m := r.Placement()
	key, middle, end := []byte("/a/b/x"), []byte("/a/b0"), []byte("/a/b0\x00")
	parts := placement.Of(m.Partition(key)) | placement.Of(m.Partition(middle))
	var free []int
	for p := range (m.All() &^ parts).Each() {
		free = append(free, p)
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	require.NoError(t, r.wish(between(m, free[0], free[1], 1)).Err)
	e := command.Entry{Commands: []command.Command{cmd(&pb.DeleteRangeRequest{Key: key, RangeEnd: end})}}
	for range 2 {
		e.Stamp = r.next()
		r.execute(&e, parts, func(_ int, res Result) { require.ErrorIs(t, res.Err, fault.Moved) })
		e.Stamp = r.next()
		r.last = &command.Step{To: middle}
		r.move(r.next(), nil)
		require.Equal(t, middle, r.Placement().Transit().Cursor)
	}
}
