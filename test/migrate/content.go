package migrate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Content is what a cluster has, read without the code under test.
type Content struct {
	Keys   map[string]Key
	Leases map[clientv3.LeaseID]Lease
}

// Key is a key's content.
type Key struct {
	Value string
	Lease int64
}

// Lease is a lease as TimeToLive shows it.
type Lease struct {
	Granted, Remaining int64
	Keys               []string
}

// Read reads a cluster in pages, and all of its leases.
func Read(ctx context.Context, c *clientv3.Client) (Content, error) {
	content := Content{Keys: map[string]Key{}, Leases: map[clientv3.LeaseID]Lease{}}
	from, rev := "\x00", int64(0)
	for {
		r, err := c.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithLimit(20_000), clientv3.WithRev(rev))
		if err != nil {
			return content, err
		}
		for _, kv := range r.Kvs {
			content.Keys[string(kv.Key)] = Key{string(kv.Value), kv.Lease}
		}
		if !r.More {
			break
		}
		rev = r.Header.Revision
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	list, err := c.Leases(ctx)
	if err != nil {
		return content, err
	}
	var mu sync.Mutex
	return content, parallel(ctx, len(list.Leases), func(ctx context.Context, i int) error {
		id := list.Leases[i].ID
		r, err := c.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
		if err != nil {
			return err
		}
		l := Lease{Granted: r.GrantedTTL, Remaining: r.TTL}
		slices.SortFunc(r.Keys, bytes.Compare)
		for _, k := range r.Keys {
			l.Keys = append(l.Keys, string(k))
		}
		mu.Lock()
		defer mu.Unlock()
		content.Leases[id] = l
		return nil
	})
}

// Differences lists some of those between a source and a target.
func Differences(source, target Content) (list []string) {
	add := func(format string, args ...any) {
		if len(list) < 10 {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	for k, v := range source.Keys {
		if w, ok := target.Keys[k]; !ok || w != v {
			add("key %q is %.50v in the source, %.50v in the target", k, v, w)
		}
	}
	for k := range target.Keys {
		if _, ok := source.Keys[k]; !ok {
			add("key %q is only in the target", k)
		}
	}
	for id, l := range source.Leases {
		m, ok := target.Leases[id]
		if !ok || m.Granted < l.Granted || !slices.Equal(l.Keys, m.Keys) {
			add("lease %x is %v in the source, %v in the target", id, l, m)
		}
	}
	for id := range target.Leases {
		if _, ok := source.Leases[id]; !ok {
			add("lease %x is only in the target", id)
		}
	}
	return list
}
