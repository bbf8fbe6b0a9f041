package cluster

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
)

// Span is a range of keys.
type Span struct {
	From, End string // as in a RangeRequest
	// Except are the prefixes of keys in the range that are not in the span.
	Except []string
}

// Prefix is the keys that begin with a prefix, but for some.
func Prefix(prefix string, except ...string) Span {
	if prefix == "" {
		return Span{From: All.From, End: All.End, Except: except}
	}
	return Span{From: prefix, End: clientv3.GetPrefixRangeEnd(prefix), Except: except}
}

func (s *Span) excepts(key []byte) bool {
	for _, p := range s.Except {
		if len(key) >= len(p) && string(key[:len(p)]) == p {
			return true
		}
	}
	return false
}

// All is every key.
var All = Span{From: "\x00", End: "\x00"}

// requestTimeout bounds each request. One that exceeds it is sent again.
const requestTimeout = 30 * time.Second

// Pages are of about so many bytes. A server looks at all keys behind a page to count
// them, so that small pages of many keys take long.
const (
	pageBytes = 16 << 20
	firstPage = 64 // keys
	maxPage   = 100_000
)

// pager reads keys in pages whose size follows that of the keys.
type pager struct {
	kv    clientv3.KV
	span  Span
	stamp bool // values are those of stamped keys
	limit atomic.Int64
}

func newPager(kv clientv3.KV, span Span) *pager {
	p := &pager{kv: kv, span: span}
	p.limit.Store(firstPage)
	return p
}

func (p *pager) page(ctx context.Context, from []byte, revision int64) (kvs []mirror.KV, next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := p.kv.Get(ctx, max(p.span.From, string(from)), clientv3.WithRange(p.span.End), clientv3.WithRev(revision), clientv3.WithLimit(p.limit.Load()))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil, nil, mirror.ErrCompacted
	}
	if err != nil {
		return nil, nil, err
	}
	kvs = make([]mirror.KV, 0, len(r.Kvs))
	for _, kv := range r.Kvs {
		if p.span.excepts(kv.Key) {
			continue
		}
		value := kv.Value
		if p.stamp {
			value = Stamped(kv)
		}
		kvs = append(kvs, mirror.KV{Key: kv.Key, Value: value, Lease: kv.Lease})
	}
	if r.More && len(r.Kvs) > 0 {
		next = append(bytes.Clone(r.Kvs[len(r.Kvs)-1].Key), 0)
	}
	p.adapt(r.Kvs)
	return kvs, next, nil
}

func (p *pager) adapt(kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 {
		return
	}
	total := 0
	for _, kv := range kvs {
		total += len(kv.Key) + len(kv.Value) + 32
	}
	p.limit.Store(min(max(int64(pageBytes*len(kvs)/total), 1), maxPage, 4*p.limit.Load()))
}
