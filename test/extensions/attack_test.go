package extensions

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var long = flag.Bool("long", false, "attack with all that the limits allow, and ask for the figures that are promised")

// sized is the size of an attack.
func sized(short, full int) int {
	if *long {
		return full
	}
	return short
}

// What the plain client may wait. The figures that are promised need a machine that has
// nothing else to do; a stall is seen on any.
const (
	promised    = 50 * time.Millisecond  // of 99 in 100 puts, and no more than three times the quiet ones
	longest     = 700 * time.Millisecond // of any put, in the short form
	mostMemory  = 300 << 20              // resident bytes of a server
	quietLength = 2 * time.Second
)

// attacks are what some client does. A refusal is as good as a success: only the plain
// client matters.
var attacks = map[string]func(w *world){
	// Each keeps four megabytes alive.
	"values that are kept": func(w *world) {
		w.register(sized(40, 250), func(i int) string {
			return fmt.Sprintf(`local s = ("x"):rep(4190000) return { scope={"/s%d/"}, operations={{op="put",prefix="/s%[1]d/"}}, put=function(e) return #s end }`, i)
		})
		w.put("/em/.limits", `{"steps": 200000}`)
		w.put("/em/.limits", `{"steps": 100000}`)
	},
	// Each takes as long to compile as a source can, and keeps a large form.
	"dense sources": func(w *world) {
		w.register(sized(20, 60), dense)
		w.put("/em/.limits", `{"steps": 200000}`)
	},
	"dense sources, over and over": func(w *world) {
		var all sync.WaitGroup
		for c := range 4 {
			all.Go(func() {
				for i := range sized(8, 40) {
					w.put("/em/again", dense(1000*c+i))
				}
			})
		}
		all.Wait()
	},
	// All in one scope, reacting to each other.
	"a shared scope": func(w *world) {
		w.register(sized(120, 400), func(int) string {
			return `return { scope={"/shared/"}, operations={{op="put",prefix="/shared/x/"}}, events={{event="deleted",prefix="/shared/"}}, put=function() end, event=function() end }`
		})
	},
	"shared scopes": func(w *world) {
		var scope strings.Builder
		for i := range 100 {
			fmt.Fprintf(&scope, `"/plain-%d/", `, i)
		}
		w.register(sized(40, 300), func(int) string {
			return `return { scope={` + scope.String() + `}, events={{event="deleted",prefix="/plain-1/"}}, event=function() end }`
		})
		ops := make([]clientv3.Op, 100)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprintf("/plain-%d/x", i), "")
		}
		for range sized(3, 20) {
			_, _ = w.cli.Txn(w.ctx).Then(ops...).Commit()
		}
	},
	"removals": func(w *world) {
		w.register(sized(100, 1000), func(i int) string {
			return fmt.Sprintf(`return { scope={"/r%d/"}, events={{event="deleted",prefix="/r%[1]d/"}}, event=function() end }`, i)
		})
		_, err := w.cli.Delete(w.ctx, "/em/", clientv3.WithPrefix())
		require.NoError(w.t, err)
	},
}

func dense(i int) string {
	return fmt.Sprintf(`local x = %d `, i) + strings.Repeat("x=function()end ", 4000) +
		fmt.Sprintf(`return { scope={"/d%d/"}, operations={{op="put",prefix="/d%[1]d/"}}, put=function() end }`, i)
}

func (w *world) put(key, value string) { _, _ = w.cli.Put(w.ctx, key, value) }

func (w *world) register(n int, source func(i int) string) {
	for i := range n {
		w.put(fmt.Sprintf("/em/e%d", i), source(i))
	}
}

// No other client notices.
func TestAttacks(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for name, attack := range attacks {
			t.Run(fmt.Sprintf("%s/%d servers", name, nodes), func(t *testing.T) {
				w := newWorld(t, nodes)
				quiet := w.plain(func() { time.Sleep(quietLength) })
				before := w.term()
				began := time.Now()
				beside := w.plain(func() { attack(w) })
				t.Logf("%v; quiet p99 %v; beside p50 %v, p99 %v, longest %v of %d; %d MiB", time.Since(began).Round(time.Millisecond),
					percentile(quiet, 0.99), percentile(beside, 0.5), percentile(beside, 0.99), percentile(beside, 1), len(beside), w.memory()>>20)
				require.Equal(t, before, w.term(), "the leader has changed")
				require.Less(t, w.memory(), int64(mostMemory))
				if *long {
					require.LessOrEqual(t, percentile(beside, 0.99), promised)
					require.LessOrEqual(t, percentile(beside, 0.99), max(3*percentile(quiet, 0.99), 10*time.Millisecond))
				} else {
					require.Less(t, percentile(beside, 1), longest)
				}
				w.restart()
				require.Less(t, w.memory(), int64(mostMemory))
			})
		}
	}
}
