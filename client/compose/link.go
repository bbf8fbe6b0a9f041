package compose

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// link is the connection of one logical client to one cluster.
type link struct {
	core    *core
	cluster *cluster
	// view, if not nil, is where the cluster's mirrored keys are read. twin is the other
	// link to the same cluster, if there are two: the one with the view, or without.
	view *view
	twin *link
	// by is nil until the cluster was used. It changes under core.mu.
	by carrier

	// sent counts requests that were given to the carrier, got their answers,
	// in the same order on a session; taken those passed to the algorithm.
	sent, got, taken atomic.Int64
	// failed: a request got an error since the algorithm was last told.
	failed atomic.Bool
	// epoch counts failures after which earlier requests must not be sent.
	epoch atomic.Uint64
	// floor is the highest revision that the client has seen of the cluster,
	// except revisions tracked by a session itself.
	floor atomic.Int64
	// updated is the number of the latest update. It changes under core.mu.
	updated int64
}

// carrier carries requests to a cluster in the order in which it is given them.
type carrier interface {
	// alive reports whether it accepts requests; else another has to be opened.
	alive() bool
	// send accepts a request; it may wait for space, not for an answer. An
	// error means that it was not sent, and done will not be called.
	send(ctx context.Context, r *request) error
	// saw makes later reads at least as new as a revision; seen is the highest
	// that was read.
	saw(revision int64)
	seen() int64
	// hurry bounds the wait for the requests that have been sent.
	hurry(by time.Time)
	close()
}

func (l *link) ready() bool { return l.by != nil && l.by.alive() }

// takeAnswers counts the answers that came since it was last called. It needs
// core.mu.
func (l *link) takeAnswers() int {
	got := l.got.Load()
	return int(got - l.taken.Swap(got))
}

// count counts a request that is given to the carrier. It needs core.mu.
func (l *link) count(k kind) {
	n := l.sent.Add(1)
	if k == update {
		l.updated = n
	}
}

// writes reports that the latest update is not answered, as far as is known. It needs core.mu.
func (l *link) writes() bool { return l.updated > l.got.Load() }

// send needs core.mu.
func (l *link) send(ctx context.Context, r *request) error {
	l.core.sending(l, r.kind)
	l.count(r.kind)
	by := r.by
	if err := l.by.send(ctx, r); err != nil {
		l.sent.Add(-1)
		return err
	}
	if !by.IsZero() {
		l.by.hurry(by)
	}
	return nil
}

// open finds a carrier. Only the pump calls it.
func (l *link) open(by time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	near, kind, err := l.cluster.connect(ctx)
	if err != nil {
		return err
	}
	var found carrier = newCalls(l)
	if kind == Stoa && l.view == nil {
		ch, err := newChannel(ctx, l, near)
		if err != nil {
			return err
		}
		if err := l.compare(ctx, ch.s); err != nil {
			ch.s.Abandon(err)
			return err
		}
		found = ch
	}
	if kind == Stoa && l.view != nil {
		l.view.near.Store(l.view.near.Load().of.nearby.share())
	}
	if !l.take(found) {
		found.close() // without the lock: it waits for the cluster
		return ErrClosed
	}
	return nil
}

// compare finds out, over a new session, whether the cluster has what was seen of it. If not, it was restored or made anew, and the
// reads of the session would wait for revisions that it may never have. Then what it has now, behind all that was acknowledged, is
// what counts, unless more was seen meanwhile.
func (l *link) compare(ctx context.Context, s *engine.Session) error {
	l.core.mu.Lock()
	seen := l.seen()
	l.core.mu.Unlock()
	if seen == 0 {
		return nil
	}
	has, err := s.Sync(ctx)
	if err == nil && has < seen {
		l.goneBack(seen, has)
	}
	return err
}

// goneBack is for a cluster that was restored or made anew: it has a lower revision than what was seen of it before it was asked for all that
// was acknowledged. What was seen of the one before counts no longer, unless it has become more meanwhile, or others have found that out, nor is it
// known whose mirrors are of this one. A session that goes on has seen the one before, too: the next request opens another one.
func (l *link) goneBack(seen, has int64) {
	for _, ch := range l.voided(seen, has) {
		ch.abandon() // without the lock: requests of it fail
	}
}

// voided are the sessions that count no longer.
func (l *link) voided(seen, has int64) (all []*channel) {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	if has == 0 || l.seen() != seen { // 0 is no revision
		return nil
	}
	for _, one := range []*link{l, l.twin} {
		if one == nil {
			continue
		}
		one.floor.Store(has)
		if ch, ok := one.by.(*channel); ok {
			ch.void.Store(true)
			all = append(all, ch)
		}
		if one.view != nil {
			one.view.home.Store(0)
		}
	}
	for f := range l.core.feeds {
		f.forgo(l.cluster.at)
	}
	return all
}

// noted is what the link knows of the revisions that were seen, less what a session does.
func (l *link) noted() int64 {
	if l.twin != nil {
		return max(l.floor.Load(), l.twin.floor.Load())
	}
	return l.floor.Load()
}

// take makes a carrier the link's; false if the client was closed meanwhile.
func (l *link) take(found carrier) bool {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	if l.core.closed {
		return false
	}
	found.saw(l.seen()) // also what was seen while it was opened
	l.by = found
	return true
}

// settle decides what the client has sent to the cluster over a session that was lost. The next session does so when it is opened; this is
// for requests that are sent beside it.
func (l *link) settle(ctx context.Context, by time.Time) error {
	l.core.mu.Lock()
	ch, ok := l.by.(*channel)
	l.core.mu.Unlock()
	if !ok || ch.alive() {
		return nil
	}
	asking, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	err := ch.settle(asking)
	if err != nil && ctx.Err() == nil {
		l.cluster.leave()
	}
	return err
}

// finish records an answer, and adds the cluster's name to an error. It needs
// no lock, and is called before the answer reaches its waiter.
func (l *link) finish(k kind, err error) error {
	if err != nil {
		err = l.judge(k, err)
	}
	l.got.Add(1)
	if l.core.wants.Load() {
		select {
		case l.core.wake <- struct{}{}:
		default:
		}
	}
	return err
}

// judge distinguishes a refusal, which is an answer, from a cluster that is cut
// off.
func (l *link) judge(k kind, err error) error {
	l.failed.Store(true)
	var left *callerLeft
	switch {
	case errors.As(err, &left):
		return l.cluster.named(left.why, k == update && left.sent)
	case errors.Is(err, ErrBehind), errors.Is(err, client.ErrOvertaken):
		return l.cluster.named(err, false)
	case !isCutOff(err):
		return err
	}
	l.core.failures.Add(1)
	l.lost()
	return l.cluster.named(plain(err), k == update && !errors.Is(err, client.ErrNotSent))
}

// callerLeft reports that the caller's context ended, which is no failure of
// the cluster.
type callerLeft struct {
	why  error
	sent bool
}

func (e *callerLeft) Error() string { return e.why.Error() }

// lost: requests up to now must not be sent any more.
func (l *link) lost() {
	l.failed.Store(true)
	l.epoch.Add(1)
}

// raise records a revision that was seen.
func (l *link) raise(revision int64) {
	for {
		now := l.floor.Load()
		if revision <= now || l.floor.CompareAndSwap(now, revision) {
			return
		}
	}
}

// saw records a revision that was seen other than through the carrier. It needs
// core.mu.
func (l *link) saw(revision int64) {
	l.raise(revision)
	if l.by != nil {
		l.by.saw(revision)
	}
}

// seen is the highest revision that the client has seen. It needs core.mu.
func (l *link) seen() int64 {
	if l.twin != nil {
		l.raise(l.twin.own())
	}
	return l.own()
}

// own is seen without what was seen over the twin alone. It needs core.mu.
func (l *link) own() int64 {
	if l.by != nil {
		l.raise(l.by.seen())
	}
	return l.floor.Load()
}

func (l *link) close() {
	l.core.mu.Lock()
	by := l.by
	l.core.mu.Unlock()
	if by != nil {
		by.close()
	}
}

// isCutOff reports errors that mean only that no answer came.
func isCutOff(err error) bool {
	for _, ended := range []error{
		client.ErrSessionExpired, client.ErrSessionClosed, client.ErrSessionTaken,
		context.Canceled, context.DeadlineExceeded, ErrSilent, ErrClosed,
	} {
		if errors.Is(err, ended) {
			return true
		}
	}
	var end *sessionEnd
	if errors.As(err, &end) {
		return true
	}
	var of rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &of) {
		code = of.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted, codes.DataLoss:
		return true
	}
	return false
}

// plain hides that the client's channel to a stoa cluster is a session: its loss is
// not that of a session of the composition.
func plain(err error) error {
	for _, ended := range []error{client.ErrSessionExpired, client.ErrSessionClosed, client.ErrSessionTaken} {
		if errors.Is(err, ended) {
			return fmt.Errorf("%w (%v)", ErrSilent, err)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (%w)", ErrSilent, err)
	}
	return err
}
