package life

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keep keeps a lease alive, which must exist for as long as it does.
func (l *life) keep(ctx context.Context, i int) {
	const ttl = 30
	key := fmt.Sprintf("/life/lease/%d", i)
	var id clientv3.LeaseID
	for n := 0; ctx.Err() == nil; sleep(ctx, 200*time.Millisecond) {
		cli, err := l.access("app").etcd()
		if err != nil {
			l.load.failed(fmt.Errorf("lease: opening: %w", err))
			continue
		}
		if id == 0 {
			id = l.grant(ctx, cli, ttl, key, fmt.Sprint(key, "-", n))
			n++
		}
		if id != 0 {
			l.renewals(ctx, cli, id)
		}
		cli.Close()
	}
}

func (l *life) renewals(ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID) {
	anew := l.load.anew()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	renewed, err := cli.KeepAlive(inner, id)
	if err != nil {
		l.load.failed(fmt.Errorf("lease: keeping alive: %w", err))
		return
	}
	last := time.Now()
	for {
		select {
		case r, ok := <-renewed:
			if !ok {
				if ctx.Err() == nil {
					l.load.failed(fmt.Errorf("lease %x: renewals end, the last was %v ago", id, time.Since(last).Round(time.Second)))
				}
				return
			}
			if r.TTL <= 0 {
				l.load.fault("lease %x has ended, renewed %v ago", id, time.Since(last))
			}
			last = time.Now()
		case <-anew:
			return
		}
	}
}

// grant grants a lease with a key, or gives 0.
func (l *life) grant(ctx context.Context, cli *clientv3.Client, ttl int64, key, value string) clientv3.LeaseID {
	l.load.gate.RLock()
	defer l.load.gate.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := cli.Grant(ctx, ttl)
	if err != nil {
		l.load.failed(fmt.Errorf("lease: %w", err))
		return 0
	}
	l.load.attempt(key, value)
	p, err := cli.Put(ctx, key, value, clientv3.WithLease(r.ID))
	if err != nil {
		l.load.failed(fmt.Errorf("lease: %w", err))
		return 0
	}
	l.load.acked("leases of "+key, key, value, p.Header.Revision, 0)
	return r.ID
}

const abandonedFor = 4

// abandon grants leases that nobody renews.
func (l *life) abandon(step string) {
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		for i := range 3 {
			key := fmt.Sprintf("/gone/%s/%d/%d", step, i, time.Now().UnixNano())
			r, err := cli.Grant(ctx, abandonedFor)
			require.NoError(l.t, err)
			_, err = cli.Put(ctx, key, "x", clientv3.WithLease(r.ID))
			require.NoError(l.t, err)
		}
	})
}

// leases wants the abandoned ones to have ended. A change of the leader gives them their whole time again.
func (l *life) leases() {
	l.t.Helper()
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		var left []string
		ok := eventually(30*time.Second, func() bool {
			resp, err := cli.Get(ctx, "/gone/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return false
			}
			left = nil
			for _, kv := range resp.Kvs {
				left = append(left, string(kv.Key))
			}
			return len(left) == 0
		})
		require.True(l.t, ok, "leases have not ended: %v", left)
	})
}
