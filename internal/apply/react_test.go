package apply

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// each runs a test with one partition and with three.
func each(t *testing.T, test func(t *testing.T, w *twins)) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("P=%d", partitions), func(t *testing.T) { test(t, newTwins(t, partitions)) })
	}
}

// must asks for what doesn't fail.
func (w *twins) must(req string) {
	w.t.Helper()
	r, _ := w.ask(who{}, requestOf(req))
	require.NoError(w.t, r.Err, req)
}

func (w *twins) register(name, source string) {
	w.t.Helper()
	r, _ := w.ask(who{}, sourcePut(name, source))
	require.NoError(w.t, r.Err)
}

func (w *twins) limit(value string) {
	w.t.Helper()
	r, _ := w.ask(who{}, &pb.PutRequest{Key: []byte(extension.LimitsKey), Value: []byte(value)})
	require.NoError(w.t, r.Err)
}

func (w *twins) standing(name string) extension.Standing {
	for _, s := range w.first.Stores {
		if kv := s.Get(extension.StateKey(name)); kv.Exists() {
			return extension.ParseStanding(kv.Value())
		}
	}
	return extension.Standing{}
}

// fill puts so many keys below /x/, before there is anything that reacts to it.
func (w *twins) fill(n int) {
	for i := range n {
		w.must(fmt.Sprintf("put /x/%05d 1", i))
	}
}

// refuse asks for what is too much work, and makes sure that nothing of it stands but
// the states of extensions.
func (w *twins) refuse(req string) error {
	w.t.Helper()
	keys := func(all string) (list []string) {
		for line := range strings.SplitSeq(all, "\n") {
			if !strings.HasPrefix(line, extension.Root) {
				list = append(list, line)
			}
		}
		return list
	}
	before, events := keys(w.first.storyKeys()), len(w.first.events)
	r, _ := w.ask(who{}, requestOf(req))
	require.ErrorIs(w.t, r.Err, fault.TooMuchWork)
	require.Equal(w.t, before, keys(w.first.storyKeys()))
	for _, e := range w.first.events[events:] {
		require.True(w.t, strings.HasSuffix(string(e.change.Kv.Key()), "/state"), "%s", e.change.Kv.Key())
	}
	w.requireEqual()
	w.reload()
	w.requireEqual()
	return r.Err
}

// used is the processor time that this process has used: on a busy machine, it is not
// longer for what others do.
func used(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const onDeletion = `return { scope = { "/x/" }, events = { { event = "deleted", prefix = "/x/" } }, event = function(e) %s end }`

// However many extensions a command wakes, and however little they do, its work is
// bounded; what is beyond it is refused as a whole.
func TestManyEmptyHandlersAreBounded(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.fill(10_000)
		for i := range 20 {
			w.register(fmt.Sprintf("e%d", i), fmt.Sprintf(onDeletion, ""))
		}
		began := used(t)
		err := w.first.apply(1<<40, requestOf("del /x/ /x0"))[0].Err
		took := used(t) - began
		require.ErrorIs(t, err, fault.TooMuchWork)
		require.Contains(t, err.Error(), "event_steps in /em/.limits")
		require.Less(t, took, mayTake)
		t.Logf("refused after %v", took)
		require.Equal(t, 10_000, w.first.count(t, "/x/"))
	})
}

// The meter is told of each extension that ran for a command that was undone,
// and of none for a command that stands.
func TestUndoneRunsAreReported(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 20000}`)
		w.fill(200)
		w.register("a", fmt.Sprintf(onDeletion, ""))
		w.register("b", fmt.Sprintf(onDeletion, ""))
		undone := func() (names []string) {
			for _, c := range w.costs[0].calls {
				if name, _, ok := strings.Cut(c, ": the runs of "); ok {
					require.Contains(t, c, "event_steps in /em/.limits")
					names = append(names, name)
				}
			}
			return names
		}
		w.refuse("del /x/ /x0")
		require.Equal(t, []string{"a", "b"}, undone())
		w.must("del /x/00000 /x/00020")
		require.Len(t, undone(), 2)
	})
}

func (r *rig) count(t *testing.T, prefix string) int {
	n := 0
	from, to := extension.Pattern(prefix).Bounds()
	for _, s := range r.Stores {
		some, err := s.Count(from, to, 0)
		require.NoError(t, err)
		n += some
	}
	return n
}

// Who sends a request that is too large pays by the refusal: no extension is counted,
// however often that is tried, and smaller requests go through.
func TestALargeRequestDisablesNothing(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 20000}`)
		w.fill(200)
		w.register("honest", fmt.Sprintf(onDeletion, `get("/x/n")`))
		w.register("other", fmt.Sprintf(onDeletion, ""))
		for range 12 {
			w.refuse("del /x/ /x0")
		}
		require.Equal(t, extension.Standing{}, w.standing("honest"))
		require.Equal(t, extension.Standing{}, w.standing("other"))
		w.must("del /x/00000 /x/00020")
	})
}

// A handler that burns the steps of requests that aren't large is what is disabled, not
// the one that comes after it.
func TestWhoBurnsTheStepsPays(t *testing.T) {
	burn := `for i = 1, 25000 do local x = i end`
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 1000000}`)
		w.fill(30)
		w.register("honest", fmt.Sprintf(onDeletion, `put("/x/n", "1")`))
		for i := range 20 {
			w.register(fmt.Sprintf("burner%d", i), fmt.Sprintf(onDeletion, burn))
		}
		w.register("honest2", fmt.Sprintf(onDeletion, `put("/x/m", "1")`))
		for i := range extension.Defaults.Failures {
			w.refuse("del /x/00001")
			require.Contains(t, w.standing("burner0").Reason, "event_steps")
			require.Equal(t, i+1 < extension.Defaults.Failures, !w.standing("burner0").Disabled)
		}
		require.Equal(t, extension.Standing{}, w.standing("honest"))
		require.Equal(t, extension.Standing{}, w.standing("honest2"))
		w.must("del /x/00001")
		require.Equal(t, 31, w.first.count(t, "/x/"), "the honest ones run")
	})
}

// Failures are counted by request: one that wakes a handler many times is one.
func TestFailuresAreCountedByRequest(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 1000000}`)
		w.fill(40)
		w.register("full", fmt.Sprintf(onDeletion, `for i = 1, 2000 do put("/x/n", ("x"):rep(10000)) end`))
		for i := range 3 {
			w.must(fmt.Sprintf("del /x/000%d0 /x/000%d9", i, i))
			require.Equal(t, i+1, w.standing("full").Failures)
		}
	})
}

// The end of a lease can't be refused: it is done in steps, each of them bounded, and all
// of its keys' events are told. Meanwhile the lease is over.
func TestALargeLeaseEndsInSteps(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		const keys = 6000
		w.register("counts", `return { scope = { "/x/", "/n" }, events = { { event = "expired", prefix = "/x/" } },
			event = function(e) put("/n", (tonumber(get("/n")) or 0) + 1) end }`)
		w.must("grant 7 60")
		for i := range keys {
			w.must(fmt.Sprintf("put /x/%d 1 lease:7", i))
		}
		steps := 1
		for ; ; steps++ {
			began := used(t)
			r, _ := w.ask(who{}, requestOf("revoke 7"))
			require.Less(t, used(t)-began, mayTake)
			if r.Err == nil {
				break
			}
			require.ErrorIs(t, r.Err, fault.LeaseEnding)
			r, _ = w.ask(who{}, requestOf("put /x/late 1 lease:7"))
			require.ErrorIs(t, r.Err, fault.LeaseNotFound)
		}
		require.Greater(t, steps, 1)
		require.Less(t, steps, 20)
		require.Zero(t, w.first.count(t, "/x/"))
		_, s := (&execution{m: w.first.Machine, local: several}).store([]byte("/n"))
		require.Equal(t, fmt.Sprint(keys), string(s.Get([]byte("/n")).Value()))
		require.Equal(t, extension.Standing{}, w.standing("counts"))
		w.requireEqual()
	})
}

// If the events of a single key of it are too much, the others are told all the same, and
// the extension that takes the steps is counted.
func TestALeaseEndsWhateverItsEventsDo(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 20000}`)
		w.register("counts", `return { scope = { "/x/", "/n" }, events = { { event = "expired", prefix = "/x/" } },
			event = function(e) put("/n", (tonumber(get("/n")) or 0) + 1) end }`)
		w.register("burns", `return { scope = { "/x/" }, events = { { event = "expired", key = "/x/07" } }, event = function(e) while true do end end }`)
		w.must("grant 7 60")
		for i := range 15 {
			w.must(fmt.Sprintf("put /x/%02d 1 lease:7", i))
		}
		steps := 1
		for ; ; steps++ {
			if r, _ := w.ask(who{}, requestOf("revoke 7")); r.Err == nil {
				break
			}
			require.Less(t, steps, 15)
		}
		require.Zero(t, w.first.count(t, "/x/"))
		_, s := (&execution{m: w.first.Machine, local: several}).store([]byte("/n"))
		require.Equal(t, "15", string(s.Get([]byte("/n")).Value()))
		require.NotZero(t, w.standing("burns").Failures)
		require.Equal(t, extension.Standing{}, w.standing("counts"))
		w.requireEqual()
	})
}

// Of extensions that set each other off in a circle the one that has closed it is
// counted, and the request is refused; one that only listens is not.
func TestACircleIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.register("listens", reaction(`if e.key ~= "/x/log" then put("/x/log", e.key) end`))
		w.register("first", reaction(`if e.key == "/x/a" then put("/x/b", revision()) end`))
		w.register("closes", reaction(`if e.key == "/x/b" then put("/x/a", revision()) end`))
		w.must("put /x/c 1")
		for i := range extension.Defaults.Failures {
			require.Equal(t, i, w.standing("closes").Failures)
			w.refuse("put /x/a 1")
		}
		require.True(t, w.standing("closes").Disabled)
		require.Equal(t, extension.Standing{}, w.standing("first"))
		require.Equal(t, extension.Standing{}, w.standing("listens"))
		w.must("put /x/a 1")
	})
}

// What a refused request has deleted under /em/ is there again, for the watches of those
// who use an extension as well.
func TestARefusedRequestKeepsExtensions(t *testing.T) {
	each(t, func(t *testing.T, w *twins) {
		w.limit(`{"event_steps": 2000}`)
		w.fill(10)
		w.register("hides", fmt.Sprintf(onDeletion, `suppress()`))
		r, _ := w.ask(who{client: "bob"}, &pb.PutRequest{Key: []byte("/em/hides/ack")})
		require.NoError(t, r.Err)
		list := w.first.registered()
		w.refuse("del /em/ /x0")
		require.Equal(t, list, w.first.registered())
		w.must("del /x/00001")
		hides := w.first.events[len(w.first.events)-1].change.Hides
		require.True(t, hides("bob"))
		require.False(t, hides("carol"))
	})
}
