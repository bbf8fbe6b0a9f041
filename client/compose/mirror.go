package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
	"github.com/stoa-kv/stoa/client/mirror/worker"
)

// Mirror is one mirror of a composition: the copy of a prefix, less the longer ones that have
// routes of their own, in one cluster.
type Mirror struct {
	Prefix, Home, Target string
}

// MirrorOptions are those of Client.Mirror.
type MirrorOptions struct {
	// Targets are the clusters whose mirrors are kept up to date: all if there are none.
	Targets []string
	// Overwrite, MaxTxnOps, Interval, Persist: as in worker.Config.
	Overwrite bool
	MaxTxnOps int
	Interval  time.Duration
	Persist   time.Duration
	// Observe returns the observer of a mirror's worker. It may be nil.
	Observe func(Mirror) worker.Observer
}

// Mirrors are all mirrors of the composition, by prefix and target.
func (c *Client) Mirrors() []Mirror {
	if c.check() != nil {
		return nil
	}
	var all []Mirror
	for _, m := range c.shared.mirrors() {
		all = append(all, m.Mirror)
	}
	return all
}

// mirrorOf is a mirror with what it is made of.
type mirrorOf struct {
	Mirror
	home, target *cluster
	route        *route
}

func (s *shared) mirrors() (all []mirrorOf) {
	for i := range s.routes.routes {
		r := &s.routes.routes[i]
		for _, at := range r.mirrors {
			all = append(all, mirrorOf{
				Mirror: Mirror{Prefix: r.prefix, Home: s.routes.names[r.cluster], Target: s.routes.names[at]},
				home:   s.clusters[r.cluster], target: s.clusters[at], route: r,
			})
		}
	}
	slices.SortFunc(all, func(a, b mirrorOf) int {
		if a.Prefix != b.Prefix {
			return cmp.Compare(a.Prefix, b.Prefix)
		}
		return cmp.Compare(a.Target, b.Target)
	})
	return all
}

// Mirror runs the workers of the composition's mirrors (package worker), in this process,
// until ctx ends: nil, or until each has ended with an error. Any number of processes may do
// so; each mirror is then kept up to date by one of them. It is best called next to the
// targets.
func (c *Client) Mirror(ctx context.Context, o MirrorOptions) error {
	if err := c.check(); err != nil {
		return err
	}
	if _, err := c.shared.named(o.Targets); err != nil {
		return err
	}
	var all []mirrorOf
	for _, m := range c.shared.mirrors() {
		if len(o.Targets) == 0 || slices.Contains(o.Targets, m.Target) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return errors.New("compose: none of the routes is mirrored there")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.core.ctx, cancel)()
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, m := range all {
		work.Go(func() { errs[i] = m.run(ctx, o) })
	}
	work.Wait()
	return errors.Join(errs...)
}

func (m *mirrorOf) run(ctx context.Context, o MirrorOptions) error {
	var observer worker.Observer
	if o.Observe != nil {
		observer = o.Observe(m.Mirror)
	}
	observer.Failed, observer.Retrying = m.suspecting(observer.Failed), m.suspecting(observer.Retrying)
	home, err := m.home.dialAgain(ctx, observer.Failed)
	if err != nil {
		return nil // the context has ended
	}
	target, err := m.target.dialAgain(ctx, observer.Failed)
	if err != nil {
		return nil
	}
	err = worker.Run(ctx, worker.Config{
		Home: home, Target: target, Keys: m.route.keys,
		Overwrite: o.Overwrite, MaxTxnOps: o.MaxTxnOps, Interval: o.Interval, Persist: o.Persist, Observer: observer,
	})
	if err != nil {
		return fmt.Errorf("compose: the mirror of %q in cluster %q: %w", m.Prefix, m.Target, err)
	}
	return nil
}

// suspecting has members left that may be the reason for an error of the worker. It goes on with the same clients.
func (m *mirrorOf) suspecting(tell func(error)) func(error) {
	return func(err error) {
		m.home.suspect()
		m.target.suspect()
		if tell != nil {
			tell(err)
		}
	}
}

// dialAgain makes the cluster's client, again until it succeeds or ctx ends.
func (c *cluster) dialAgain(ctx context.Context, failed func(error)) (*clientv3.Client, error) {
	for {
		by, err := c.voter(ctx)
		if err == nil {
			return by, nil
		}
		if failed != nil {
			failed(c.named(err, false))
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// MirrorStatus is how far a mirror is.
type MirrorStatus struct {
	Mirror
	// Mark is the target's; zero if there is none: the mirror has not been begun.
	Mark mirror.Mark
	// Revision is the present one of home, Behind the number of those that the target
	// lacks.
	Revision, Behind int64
	// Lag is 0 if nothing lacks, else the time since the mark was written, by the clocks of
	// this process and of the worker.
	Lag time.Duration
	// Usable: clients of this composition can read the mirror.
	Usable bool
}

// MirrorStatus reads how far all mirrors are. The error names the first cluster that doesn't
// answer; statuses of the others are complete.
func (c *Client) MirrorStatus(ctx context.Context) ([]MirrorStatus, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	mirrors := c.shared.mirrors()
	found, errs := make([]MirrorStatus, len(mirrors)), make([]error, len(mirrors))
	ctx, cancel := context.WithTimeout(ctx, c.core.cfg.Timeout)
	defer cancel()
	var work sync.WaitGroup
	for i, m := range mirrors {
		work.Go(func() { found[i], errs[i] = m.status(ctx) })
	}
	work.Wait()
	var all []MirrorStatus
	for i, err := range errs {
		if err == nil {
			all = append(all, found[i])
		}
	}
	return all, first(errs)
}

func (m *mirrorOf) status(ctx context.Context) (MirrorStatus, error) {
	st := MirrorStatus{Mirror: m.Mirror}
	var got *clientv3.GetResponse
	err := m.target.asked(ctx, func(ctx context.Context, target *clientv3.Client) (err error) {
		got, err = target.Get(ctx, m.route.mark)
		return err
	})
	if err == nil && len(got.Kvs) > 0 {
		st.Mark, err = mirror.ParseMark(got.Kvs[0].Value)
	}
	if err != nil {
		return st, m.target.named(err, false)
	}
	err = m.home.asked(ctx, func(ctx context.Context, home *clientv3.Client) (err error) {
		st.Revision, err = mirrored.NewSource(home, m.route.keys.Span()).Revision(ctx)
		return err
	})
	if err != nil {
		return st, m.home.named(err, false)
	}
	st.Behind = max(st.Revision-st.Mark.Revision, 0)
	if st.Behind > 0 && st.Mark.Time > 0 {
		st.Lag = max(time.Since(time.UnixMilli(st.Mark.Time)), 0)
	}
	st.Usable = st.Mark.Phase == mirror.At && st.Mark.Keys == m.route.said
	return st, nil
}
