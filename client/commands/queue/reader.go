package queue

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

const (
	// requestTimeout bounds each request. One that exceeds it is sent again.
	requestTimeout = 10 * time.Second
	// pageEntries is how many entries are read at a time, pageBytes how many bytes of
	// a watch are taken to be more than a carrier keeps up with: it goes on in pages then.
	pageEntries = 128
	pageBytes   = 8 << 20
)

// reader reads the entries of a queue in their order: in pages, and when it has all there are, by a
// watch.
type reader struct {
	c        *clientv3.Client
	keys     Keys
	clusters int
	read     int64       // the last entry
	feed     mirror.Feed // nil: pages
}

// next waits for further entries. There may be none.
func (r *reader) next(ctx context.Context) ([]commands.Entry, error) {
	if r.feed == nil {
		return r.page(ctx)
	}
	changes, _, err := r.feed.Next(ctx)
	if err != nil {
		r.pages()
		if errors.Is(err, mirror.ErrCompacted) {
			return nil, nil // entries stay until they are done: pages have them
		}
		return nil, err
	}
	entries, bytes := make([]commands.Entry, 0, len(changes)), 0
	for _, c := range changes {
		if c.Deleted {
			continue
		}
		bytes += len(c.Value)
		if entries, err = r.add(entries, c.Key, c.Value, c.Revision); err != nil {
			return nil, err
		}
	}
	if bytes > pageBytes {
		r.pages()
	}
	return entries, nil
}

func (r *reader) page(ctx context.Context) (entries []commands.Entry, err error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := r.c.Get(asking, r.keys.entries(), clientv3.WithPrefix(), clientv3.WithMinCreateRev(r.read+1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(pageEntries))
	if err != nil {
		return nil, err
	}
	for _, kv := range got.Kvs {
		if entries, err = r.add(entries, kv.Key, kv.Value, kv.CreateRevision); err != nil {
			return nil, err
		}
	}
	if len(got.Kvs) < pageEntries {
		r.feed = cluster.NewSource(r.c, cluster.Prefix(r.keys.entries())).Changes(ctx, got.Header.Revision+1)
	}
	return entries, nil
}

func (r *reader) add(to []commands.Entry, key, value []byte, revision int64) ([]commands.Entry, error) {
	client, number, err := r.keys.parse(string(key))
	if err != nil {
		return nil, err
	}
	batch, err := commands.Decode(value, r.clusters)
	if err != nil {
		return nil, err
	}
	r.read = revision
	return append(to, commands.Entry{Revision: revision, Client: client, Number: number, Commands: batch}), nil
}

// pages ends the watch, so that what is not read stays in the queue.
func (r *reader) pages() {
	if r.feed != nil {
		r.feed.Close()
		r.feed = nil
	}
}
