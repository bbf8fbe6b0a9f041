package extensions

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// registrations aim at the registry and the compiler.
var registrations = []attack{
	// Each keeps 1.5 megabytes alive: the top level has no steps for more.
	{name: "values that are kept", do: func(w *world) {
		w.register(sized(40, 250), func(i int) string {
			return fmt.Sprintf(`local s = ("x"):rep(1500000) return { scope={"/s%d/"}, operations={{op="put",prefix="/s%[1]d/"}}, put=function(e) return #s end }`, i)
		})
		w.limit("steps", 200_000)
		w.limit("steps", 100_000)
	}},
	// Each takes as long to compile as a source can, and keeps a large form.
	{name: "dense sources", do: func(w *world) {
		w.register(sized(3, 40), dense)
		w.limit("steps", 200_000)
	}},
	{name: "dense sources, over and over", do: func(w *world) {
		w.many(4, func(c int) {
			for i := range sized(1, 20) {
				w.put("/em/again", dense(1000*c+i))
			}
		})
	}},
	{name: "dense sources by sessions", do: func(w *world) {
		w.many(4, func(c int) {
			s := w.session(c)
			for i := range sized(1, 20) {
				_, _ = s.Put(w.ctx, "/em/again", dense(5000+1000*c+i))
			}
		})
	}},
	{name: "refused sources", do: func(w *world) {
		w.many(4, func(c int) {
			for i := range sized(1, 20) {
				w.put("/em/refused", strings.Replace(dense(9000+1000*c+i), "return", "return nil and", 1))
			}
		})
	}},
	// All in one scope, reacting to each other.
	{name: "a shared scope", do: func(w *world) {
		w.register(sized(100, 400), func(int) string {
			return `return { scope={"/shared/"}, operations={{op="put",prefix="/shared/x/"}}, events={{event="deleted",prefix="/shared/"}}, put=function() end, event=function() end }`
		})
	}},
	{name: "shared scopes", do: func(w *world) {
		var scope strings.Builder
		for i := range 100 {
			fmt.Fprintf(&scope, `"/many-%d/", `, i)
		}
		w.register(sized(40, 300), func(int) string {
			return `return { scope={` + scope.String() + `}, events={{event="deleted",prefix="/many-1/"}}, event=function() end }`
		})
		ops := make([]clientv3.Op, 100)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprintf("/many-%d/x", i), "")
		}
		for range sized(3, 20) {
			_, _ = w.cli.Txn(w.ctx).Then(ops...).Commit()
		}
	}},
	{name: "removals", do: func(w *world) {
		for range sized(1, 3) {
			w.register(sized(100, 3000), func(i int) string {
				return fmt.Sprintf(`return { scope={"/r%d/"}, events={{event="deleted",prefix="/r%[1]d/"}}, event=function() end }`, i)
			})
			_, _ = w.cli.Delete(w.ctx, "/em/", clientv3.WithPrefix())
		}
	}},
	{name: "limits to and fro", do: func(w *world) {
		w.register(sized(50, 1000), func(i int) string {
			return fmt.Sprintf(`return { scope={"/r%d/"}, events={{event="deleted",prefix="/r%[1]d/"}}, event=function() end }`, i)
		})
		for i := range sized(20, 400) {
			w.limit("steps", 100_000+i%2)
		}
		_, _ = w.cli.Delete(w.ctx, "/em/.limits")
	}},
}

func dense(i int) string {
	return fmt.Sprintf(`local x = %d `, i) + strings.Repeat("x=function()end ", 4000) +
		fmt.Sprintf(`return { scope={"/d%d/"}, operations={{op="put",prefix="/d%[1]d/"}}, put=function() end }`, i)
}
