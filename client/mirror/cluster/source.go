package cluster

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
)

var _ mirror.Source = (*Source)(nil)

// Source is a cluster that is mirrored.
type Source struct {
	*pager
	c *clientv3.Client
}

// NewSource returns the keys of a span as a source.
func NewSource(c *clientv3.Client, span Span) *Source {
	return &Source{pager: newPager(c, span), c: c}
}

// NewStampedSource is NewSource with values that have stamps: the target can tell then what
// each key is in the source. Only readers that know of stamps can use it.
func NewStampedSource(c *clientv3.Client, span Span) *Source {
	s := NewSource(c, span)
	s.stamp = true
	return s
}

// ID implements mirror.Source.
func (s *Source) ID(ctx context.Context) (uint64, error) {
	r, err := s.head(ctx)
	if err != nil {
		return 0, err
	}
	return r.Header.ClusterId, nil
}

// Revision implements mirror.Source.
func (s *Source) Revision(ctx context.Context) (int64, error) {
	r, err := s.head(ctx)
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// head reads the number of a key that the user may read, linearizable, for the header.
func (s *Source) head(ctx context.Context) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.kv.Get(ctx, s.span.From, clientv3.WithCountOnly())
}

// Page implements mirror.Source.
func (s *Source) Page(ctx context.Context, from []byte, revision int64) ([]mirror.KV, []byte, error) {
	return s.page(ctx, from, revision)
}

// Changes implements mirror.Source.
func (s *Source) Changes(ctx context.Context, from int64) mirror.Feed {
	return newFeed(ctx, s.c, s.span, s.stamp, from)
}
