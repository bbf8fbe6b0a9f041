package extensions

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// events aim at the work that follows from one request.
var events = []attack{
	// More handlers than may run, and then as many as may.
	{name: "handlers that do nothing", do: func(w *world) {
		w.register(100, func(int) string {
			return `return { scope={"/p/"}, events={{event="deleted",prefix="/p/"}}, event=function() end }`
		})
		w.fill(sized(2000, 19_900), func(i int) string { return fmt.Sprintf("/p/%d", i) })
		few := func(i int) string { return fmt.Sprintf("/p/few/%d", i) }
		most := w.most(11)
		_, err := w.cli.Delete(w.ctx, "/p/", clientv3.WithPrefix())
		require.ErrorContains(w.t, err, "event_steps")
		for w.lasts() {
			_, _ = w.cli.Delete(w.ctx, "/p/1", clientv3.WithRange("/p/1~"))
			_, err = w.cli.Delete(w.ctx, "/p/few/", clientv3.WithPrefix())
			require.NoError(w.t, err)
			w.fill(most, few)
		}
	}},
	{name: "handlers that do all they may", do: func(w *world) {
		for i := range 10 {
			w.put(fmt.Sprintf("/em/e%d", i), fmt.Sprintf(`return { scope={"/p/"}, events={{event="modified",key="/p/go"}}, event=function() for i = 1, %d do local x = i end end }`, w.most(7000)))
		}
		w.many(4, func(int) {
			for w.lasts() {
				w.put("/p/go", "1")
			}
		})
	}},
	{name: "a storm", do: func(w *world) {
		w.put("/em/e", `return { scope={"/p/"}, events={{event="created",prefix="/p/"},{event="modified",prefix="/p/"}}, event=function(e) put(e.key .. "0", "1") put(e.key .. "1", "1") end }`)
		w.many(4, func(int) {
			for w.lasts() {
				w.put("/p/x", "1")
				w.put("/em/e/state", "enabled")
			}
		})
	}},
	{name: "the end of a large lease", do: func(w *world) {
		w.register(20, func(int) string {
			return `return { scope={"/p/"}, events={{event="expired",prefix="/p/"}}, event=function(e) put("/p/last", e.key) end }`
		})
		l, err := w.cli.Grant(w.ctx, 600)
		require.NoError(w.t, err)
		w.fill(sized(500, 10_000), func(i int) string { return fmt.Sprintf("/p/%d", i) }, clientv3.WithLease(l.ID))
		_, _ = w.cli.Revoke(w.ctx, l.ID)
	}},
}

// most is how many of something are as many as event_steps allow by default: at the ceiling it
// is twice as many.
func (w *world) most(byDefault int) int {
	if w.setting.limits != "" {
		return 2 * byDefault
	}
	return byDefault
}

// failures aim at extensions of others: to have them disabled, or their acknowledgements
// used up.
var failures = []attack{
	{
		name: "another's extension beside one that burns steps",
		do: func(w *world) {
			w.victim("/p/")
			w.put("/em/burns", `return { scope={"/p/"}, events={{event="deleted",prefix="/p/"}}, event=function() while true do end end }`)
			for w.lasts() {
				w.fill(20, func(i int) string { return fmt.Sprintf("/p/%d", i) })
				_, _ = w.cli.Delete(w.ctx, "/p/", clientv3.WithPrefix())
				w.put("/em/burns/state", "enabled")
			}
		},
		after: func(w *world) { w.unharmed() },
	},
	{
		name: "another's extension under many changes",
		do: func(w *world) {
			w.victim("/p/")
			key := func(i int) string { return fmt.Sprintf("/p/%d", i) }
			w.fill(6000, key)
			for range 12 {
				_, err := w.cli.Delete(w.ctx, "/p/", clientv3.WithPrefix())
				require.ErrorContains(w.t, err, "event_steps")
			}
		},
		after: func(w *world) { w.unharmed() },
	},
	{
		name: "one request that fails many times",
		do: func(w *world) {
			w.put("/em/rate", `return { scope={"/p/"}, events={{event="deleted",prefix="/p/"}}, event=function() while true do end end }`)
			w.fill(8, func(i int) string { return fmt.Sprintf("/p/%d", i) })
			_, _ = w.cli.Delete(w.ctx, "/p/", clientv3.WithPrefix())
		},
		after: func(w *world) { require.Contains(w.t, w.get("/em/rate/state"), "failing 1:") },
	},
	{
		name: "an acknowledgement for once",
		do: func(w *world) {
			other := w.clientAs("owner of once")
			_, err := other.Put(w.ctx, "/em/once", `return { scope={"/p/"}, operations={{op="put",key="/p/once"}}, put=function(r) if r.value == "fail" then error("no") end return "called" end }`)
			require.NoError(w.t, err)
			w.put("/em/once/ack", "once")
			_, err = w.cli.Put(w.ctx, "/p/once", "fail")
			require.ErrorContains(w.t, err, "no")
		},
		after: func(w *world) {
			r, err := w.cli.Put(w.ctx, "/p/once", "good", clientv3.WithPrevKV())
			require.NoError(w.t, err)
			require.Equal(w.t, "called", string(r.PrevKv.Value))
		},
	},
	{
		name: "the deletion of the limits",
		do: func(w *world) {
			w.limit("source", 128<<10)
			_, err := w.cli.Put(w.ctx, "/em/large", handler("return 1")+"--"+strings.Repeat("x", 100<<10))
			require.NoError(w.t, err)
			_, err = w.cli.Delete(w.ctx, "/em/.limits")
			require.ErrorContains(w.t, err, "the source has")
		},
		after: func(w *world) {
			_, err := w.cli.Put(w.ctx, "/x/go", "")
			require.NoError(w.t, err)
			require.NotEmpty(w.t, w.get("/em/large"))
		},
	},
}

// victim registers another client's extension, which counts deletions.
func (w *world) victim(scope string) {
	_, err := w.clientAs("victim").Put(w.ctx, "/em/victim", fmt.Sprintf(
		`return { scope={%q}, events={{event="deleted",prefix=%[1]q}}, event=function(e) put(%[1]q .. "n", (tonumber(get(%[1]q .. "n")) or 0) + 1) end }`, scope))
	require.NoError(w.t, err)
}

// unharmed asks for the other client's extension to be neither disabled nor close to it.
func (w *world) unharmed() {
	require.Contains(w.t, []string{"", "enabled"}, w.get("/em/victim/state"))
}
