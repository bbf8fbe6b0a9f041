package extensions

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The attackers' requests. None of them has to succeed.

func (w *world) put(key, value string) { _, _ = w.cli.Put(w.ctx, key, value) }

func (w *world) register(n int, source func(i int) string) {
	for i := range n {
		w.put(fmt.Sprintf("/em/e%d", i), source(i))
	}
}

// call calls an extension by a put, and enables it again once it has failed too often.
func (w *world) call(key string) {
	if _, err := w.cli.Put(w.ctx, key, ""); err != nil && strings.Contains(err.Error(), "disabled") {
		w.put("/em/x/state", "enabled")
	}
}

// limit sets one of the limits beside those of the setting.
func (w *world) limit(name string, value int) {
	limits := map[string]int64{}
	if w.setting.limits != "" {
		require.NoError(w.t, json.Unmarshal([]byte(w.setting.limits), &limits))
	}
	limits[name] = int64(value)
	text, err := json.Marshal(limits)
	require.NoError(w.t, err)
	w.put("/em/.limits", string(text))
}

// fill puts keys, 100 at a time.
func (w *world) fill(n int, key func(i int) string, opts ...clientv3.OpOption) {
	for i := 0; i < n; i += 100 {
		var ops []clientv3.Op
		for j := i; j < min(i+100, n); j++ {
			ops = append(ops, clientv3.OpPut(key(j), "1", opts...))
		}
		_, _ = w.cli.Txn(w.ctx).Then(ops...).Commit()
	}
}

// compact drops all history.
func (w *world) compact() {
	r, err := w.cli.Get(w.ctx, "/plain/")
	require.NoError(w.t, err)
	_, _ = w.cli.Compact(w.ctx, r.Header.Revision)
}

func (w *world) get(key string) string {
	r, err := w.cli.Get(w.ctx, key)
	require.NoError(w.t, err)
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

// many has so many clients do something at once.
func (w *world) many(n int, do func(i int)) {
	w.lasts() // they begin together
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// length is how long an attack without an end of its own goes on.
func (w *world) length() time.Duration {
	if *long {
		return 8 * time.Second
	}
	return 250 * time.Millisecond
}

// lasts tells whether such an attack goes on, from when it is called first.
func (w *world) lasts() bool {
	if w.until.IsZero() {
		w.until = time.Now().Add(w.length())
	}
	return time.Now().Before(w.until)
}

// clear removes what an attack has left.
func (w *world) clear() {
	r, err := w.cli.Get(w.ctx, "/em/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(w.t, err)
	for _, kv := range r.Kvs {
		if name := strings.TrimPrefix(string(kv.Key), "/em/"); !strings.Contains(name, "/") && name != ".limits" {
			_, err := w.cli.Delete(w.ctx, string(kv.Key))
			require.NoError(w.t, err)
		}
	}
	for _, prefix := range []string{"/p/", "/x/", "/o/", "/sl/", "/many-"} {
		_, err := w.cli.Delete(w.ctx, prefix, clientv3.WithPrefix())
		require.NoError(w.t, err)
	}
	if w.setting.limits == "" {
		_, err = w.cli.Delete(w.ctx, "/em/.limits")
	} else {
		_, err = w.cli.Put(w.ctx, "/em/.limits", w.setting.limits)
	}
	require.NoError(w.t, err)
}
