package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/internal/elect"
	"github.com/stoa-kv/stoa/client/internal/lag"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// Run mirrors until the context ends, nil, or an operator has to decide.
func Run(ctx context.Context, c Config) error {
	w := &worker{Config: c.withDefaults()}
	return elect.Terms(ctx, w.term, final, w.Persist, func(err error) {
		if w.Observer.Failed != nil {
			w.Observer.Failed(err)
		}
	})
}

// final reports errors that don't pass by themselves, and that only an operator can do
// something about.
func final(err error) bool {
	for _, f := range []error{ErrSame, mirror.ErrNotEmpty, mirror.ErrOtherSource, mirror.ErrOtherKeys,
		rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

type worker struct {
	Config
	e     *mirror.Executor
	total int64 // keys at home when a copy began, about
	lag   lag.Lag
}

// term is from an election to the loss of the place.
func (w *worker) term(ctx context.Context) error {
	if w.Observer.Waiting != nil {
		w.Observer.Waiting()
	}
	elected, leave, err := elect.Campaign(ctx, w.Target, w.Keys.CandidatesKey(), w.TTL)
	if err != nil {
		return fmt.Errorf("election in the target: %w", err)
	}
	defer leave()
	if err := w.apart(elected); err != nil {
		return elect.LeaseLost(ctx, elected, err)
	}
	if err := w.open(elected); err != nil {
		return elect.LeaseLost(ctx, elected, err)
	}
	defer w.e.Close()
	return elect.LeaseLost(ctx, elected, w.follow(elected))
}

// ErrSame is returned for a cluster that is to be mirrored in itself: each change would be a change again, with a longer value.
var ErrSame = errors.New("home and target are the same cluster")

// apart looks for an own candidate of the target at home. The clusters' IDs alone don't tell: those of two clusters that were made with the same
// addresses, each on a host of its own, are equal.
func (w *worker) apart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.TTL)
	defer cancel()
	prefix := w.Keys.CandidatesKey() + "/"
	there, err := w.Target.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	here, err := w.Home.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied): // then it isn't where the worker is a candidate
		return nil
	case err != nil:
		return fmt.Errorf("home: %w", err)
	case here.Header.ClusterId != there.Header.ClusterId:
		return nil
	}
	for _, kv := range here.Kvs {
		if slices.ContainsFunc(there.Kvs, func(at *mvccpb.KeyValue) bool {
			return bytes.Equal(at.Key, kv.Key) && at.CreateRevision == kv.CreateRevision
		}) {
			return fmt.Errorf("%w, %x", ErrSame, here.Header.ClusterId)
		}
	}
	return nil
}

// open takes over the mirror.
func (w *worker) open(ctx context.Context) error {
	source, target := cluster.NewMirror(w.Home, w.Target, w.Keys)
	from := &home{Source: source, patience: w.TTL}
	c := mirror.Config{
		Source: from, Target: target, Owner: elect.Name(), Limits: w.limits(), Keys: w.Keys.String(), EveryChange: true,
		Now: func() int64 { return time.Now().UnixMilli() }, Writers: inFlight, Overwrite: w.Overwrite, Retry: from.retry(w.Observer.Retrying), Compared: w.copied,
	}
	var before mirror.Mark
	value, at, err := target.Mark(ctx)
	if err == nil && at != 0 {
		before, err = mirror.ParseMark(value)
	}
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if w.e, err = mirror.Open(ctx, c); err != nil {
		return err
	}
	w.lag = lag.Lag{}
	if w.Observer.Elected != nil {
		w.Observer.Elected(before, at != 0)
	}
	return nil
}

// follow mirrors until it fails or has lost its place.
func (w *worker) follow(ctx context.Context) error {
	var looked, checked time.Time
	for {
		if w.e.Mark().Phase == mirror.Copying {
			w.count(ctx)
		}
		wait, cancel := context.WithTimeout(ctx, w.Interval)
		err := w.e.Next(ctx, wait)
		cancel()
		if err == nil {
			err = w.e.Advance(ctx)
		}
		if err == nil && time.Since(looked) >= w.Interval {
			looked = time.Now()
			err = w.look(ctx, looked)
		}
		if err == nil && time.Since(checked) >= checkEach {
			checked = time.Now()
			err = w.e.Check(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// look asks how far home is, so that the mark gets there.
func (w *worker) look(ctx context.Context, now time.Time) error {
	behind, err := w.e.Behind(ctx)
	if err != nil || w.Observer.Following == nil {
		return err
	}
	m := w.e.Mark()
	w.Observer.Following(Status{Phase: m.Phase, Revision: m.Revision, Behind: behind, Lag: w.lag.Look(now, m.Revision+behind, m.Revision)})
	return nil
}

// count asks for the number of keys at home, for the progress of a copy.
func (w *worker) count(ctx context.Context) {
	span := w.Keys.Span()
	ctx, cancel := context.WithTimeout(ctx, w.TTL)
	defer cancel()
	r, err := w.Home.Get(ctx, span.From, clientv3.WithRange(span.End), clientv3.WithCountOnly())
	if w.total = 0; err == nil {
		w.total = r.Count
	}
}

func (w *worker) copied(keys, written int64) {
	if w.Observer.Copied != nil {
		w.Observer.Copied(keys, max(w.total, keys), written)
	}
}
