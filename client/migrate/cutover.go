package migrate

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// errMoved is the reason for which a cut-over begins again.
var errMoved = errors.New("the source was written to while it was cut over, or one of its leases ended")

// cutOver attaches leases, compares, and removes the mark. The source must be where the
// target is, and stay there: it looks before and after.
func (m *migration) cutOver(ctx context.Context) (Result, error) {
	if m.Observer.CuttingOver != nil {
		m.Observer.CuttingOver()
	}
	at := m.e.Place()
	if err := m.e.Leave(ctx); err != nil {
		return Result{}, err
	}
	before, err := m.sourceRevision(ctx)
	if err != nil {
		return Result{}, err
	}
	if n, err := m.e.Behind(ctx); err != nil || m.e.Mark().Revision != at.Source || n > 0 {
		return Result{}, moved(err)
	}
	leases, err := m.moveLeases(ctx)
	if err != nil {
		return Result{}, err
	}
	c, err := m.compareAll(ctx, at.Source)
	if err != nil {
		return Result{}, err
	}
	after, err := m.sourceRevision(ctx)
	if err != nil || after != before {
		return Result{}, moved(err)
	}
	if err := c.check(); err != nil {
		return Result{}, err
	}
	if m.Observer.Verified != nil {
		m.Observer.Verified(c.place, c.Source)
	}
	return Result{Place: c.place, Sum: c.Source, Leases: leases}, m.e.Finish(ctx)
}

func moved(err error) error {
	if err == nil {
		err = errMoved
	}
	return err
}

func (m *migration) sourceRevision(ctx context.Context) (rev int64, err error) {
	err = m.again(ctx, func() error {
		rev, err = m.source.Revision(ctx)
		return err
	})
	return rev, err
}

// compareAll compares keys, values and leases.
func (m *migration) compareAll(ctx context.Context, source int64) (c comparison, err error) {
	err = m.again(ctx, func() error {
		target, err := cluster.NewSource(m.To, cluster.All).Revision(ctx)
		if err != nil {
			return err
		}
		c.place = mirror.Place{Source: source, Target: target}
		c.Comparison, err = mirror.Compare(ctx, m.source, m.target, c.place, true)
		return err
	})
	if errors.Is(err, mirror.ErrCompacted) {
		err = fmt.Errorf("%w, and compacted", errMoved)
	}
	return c, err
}

// again calls fn until it succeeds or its error doesn't pass.
func (m *migration) again(ctx context.Context, fn func() error) error {
	retry := cluster.Retry(m.Observer.Retrying)
	for {
		err := fn()
		if err == nil || !retry(ctx, err) {
			return err
		}
	}
}

// leaseMoved turns the errors of keys and leases that are gone into errMoved.
func leaseMoved(err error) error {
	if errors.Is(err, rpctypes.ErrKeyNotFound) || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%w (%w)", errMoved, err)
	}
	return err
}
