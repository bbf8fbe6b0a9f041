package extensions

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// calls aim at the time of one call.
var calls = []attack{
	loop("the index of a table", `local k, t = {}, {} for i = 1, 8 do k[i] = ("x"):rep(300000 + i) end
		while true do for i = 1, 8 do t[k[i]] = i end for i = 1, 8 do t[k[i]] = nil end end`),
	loop("a large table", `local t, i = {}, 0 while true do i = i + 1 t["k" .. i] = i end`),
	loop("format", `local f = ("%%"):rep(100000) while true do local s = string.format(f) end`),
	loop("sorting", `local t = {} while true do for i = 1, 2000 do t[i] = "x" .. (i * 7919) % 2000 end table.sort(t) end`),
	loop("an empty loop", `while true do end`),
	loop("garbage", `while true do local s = ("x"):rep(100000) end`),
	loop("reads", `while true do range("/x/", 100) end`),
	loop("writes", `local i = 0 while true do i = i + 1 put("/x/" .. i, "value") end`),
	{name: "many slow calls at once", do: func(w *world) {
		w.put("/em/x", handler(`for i = 1, 30000 do end`))
		w.many(100, func(int) {
			for w.lasts() {
				w.call("/x/go")
			}
		})
	}},
	{name: "slow calls of sessions", do: func(w *world) {
		w.put("/em/x", handler(`for i = 1, 30000 do end`))
		w.many(4, func(i int) {
			s := w.session(i)
			for w.lasts() {
				calls := make([]*client.Future[*clientv3.PutResponse], 100)
				for j := range calls {
					calls[j] = s.PutAsync("/x/go", "")
				}
				for _, c := range calls {
					_, _ = c.Wait(w.ctx)
				}
			}
		})
	}},
	// All keys that the limits allow, and as many bytes as there are steps for.
	writes("large writes", `local v = ("x"):rep(600) for i = 1, 1000 do put("/x/" .. i, v) end`,
		`local v = ("x"):rep(1040) for i = 1, 2000 do put("/x/" .. i, v) end`),
	// All bytes that the limits allow.
	writes("writes of large values", `local v = ("x"):rep(104800) for i = 1, 10 do put("/x/" .. i, v) end`,
		`local v = ("x"):rep(104800) for i = 1, 20 do put("/x/" .. i, v) end`),
	// Extensions that the client may not use have a say in none of its requests.
	{name: "a transaction under extensions of others", do: func(w *world) {
		other := w.clientAs("other")
		for i := range sized(50, 300) {
			_, _ = other.Put(w.ctx, fmt.Sprintf("/em/o%d", i), `return { scope={"/o/"}, operations={{op="txn",prefix="/o/"},{op="put",prefix="/o/"}}, txn=function() end, put=function() end }`)
		}
		ops := make([]clientv3.Op, 127)
		for i := range ops {
			ops[i] = clientv3.OpTxn(nil, []clientv3.Op{
				clientv3.OpPut(fmt.Sprintf("/o/a%d", i), ""), clientv3.OpPut(fmt.Sprintf("/o/b%d", i), ""), clientv3.OpPut(fmt.Sprintf("/o/c%d", i), ""),
			}, nil)
		}
		for w.lasts() {
			_, _ = w.cli.Txn(w.ctx).Then(ops...).Commit()
		}
	}},
	{name: "keys of slashes", without: keysOfSlashes, do: func(w *world) {
		w.put("/em/x", `return { scope={"/sl/"}, events={{event="created",prefix="/sl/none/"}}, event=function() end }`)
		keysOfSlashes(w)
	}},
}

func keysOfSlashes(w *world) {
	for w.lasts() {
		w.fill(1000, func(i int) string { return "/sl" + strings.Repeat("/", 990) + fmt.Sprint(i) })
		_, _ = w.cli.Delete(w.ctx, "/sl/", clientv3.WithPrefix())
	}
}

// loop is a handler that runs until a limit ends it, called by four clients at once.
func loop(name, body string) attack {
	return attack{name: name, do: func(w *world) {
		w.fill(200, func(i int) string { return fmt.Sprintf("/x/k%d", i) })
		w.put("/em/x", handler(body))
		w.many(4, func(int) {
			for w.lasts() {
				w.call("/x/go")
			}
		})
	}}
}

// writes is a handler, of each setting, that writes as much as can be written and no more. One of
// its callers compacts, lest the database be full of it.
func writes(name, defaults, ceilings string) attack {
	return attack{name: name, do: func(w *world) {
		body := defaults
		if w.setting.limits != "" {
			body = ceilings
		}
		w.put("/em/x", handler(body))
		_, err := w.cli.Put(w.ctx, "/x/go", "")
		require.NoError(w.t, err)
		w.many(4, func(i int) {
			for n := 0; w.lasts(); n++ {
				w.call("/x/go")
				if i == 0 && n%20 == 0 {
					w.compact()
				}
			}
		})
	}}
}

func handler(body string) string {
	return `return { scope={"/x/"}, operations={{op="put",key="/x/go"}}, put=function(request) ` + body + ` end }`
}
