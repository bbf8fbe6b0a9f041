package compose

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// channel carries requests to a stoa cluster: a session, which keeps their order,
// bound to the preferred members. Local reads are causal ones, so no member, not even
// after a fail-over, answers with less than the session has seen. A synced read is a
// strict one: it reflects all that was acknowledged before it was sent, and as its
// answer's revision becomes the session's, so do the causal reads behind it.
type channel struct {
	l      *link
	s      *engine.Session
	local  engine.Reader
	quick  map[*route]*quick
	closed atomic.Bool
	// settled: it was lost, and the cluster has ended its session.
	settled atomic.Bool
	// void: what it has seen is of a cluster that has been restored since, or made anew.
	void atomic.Bool
	// unled: of the requests that lead, the latest that was answered was refused. It changes with the answers.
	unled atomic.Bool
}

// quick are the callbacks for answers to requests without state of their own, which lead or don't.
type quick struct {
	get, synced  func(*clientv3.GetResponse, error) (*clientv3.GetResponse, error)
	put, leading func(*clientv3.PutResponse, error) (*clientv3.PutResponse, error)
}

func newChannel(ctx context.Context, l *link, near *engine.Client) (*channel, error) {
	ttl := max(3*l.core.cfg.Timeout, 15*time.Second) + time.Second - 1
	options := engine.Options{TTL: ttl.Truncate(time.Second), Level: engine.Causal, Refusal: refusedFor}
	if len(l.cluster.of.Near) > 0 {
		options.Endpoints = l.cluster.members
	}
	s, err := near.Session(ctx, options)
	if err != nil {
		return nil, err
	}
	ch := &channel{l: l, s: s, local: s.At(engine.Causal), quick: map[*route]*quick{}}
	if old, ok := l.by.(*channel); ok {
		if err := old.settle(ctx); err != nil {
			l.cluster.leave()
			s.Abandon(err)
			return nil, err
		}
	}
	for i := range l.core.routes.routes {
		if r := &l.core.routes.routes[i]; r.cluster == l.cluster.at {
			ch.quick[r] = ch.quickOf(r)
		}
	}
	l.core.watch.add(ch)
	return ch, nil
}

// settle ends the session, which was lost: its updates that have not taken effect by now never will, so none can take
// effect after later ones.
func (ch *channel) settle(ctx context.Context) error {
	if ch.settled.Load() {
		return nil
	}
	near, _, err := ch.l.cluster.connect(ctx)
	if err == nil {
		_, err = near.Revoke(ctx, ch.s.ID())
	}
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("ending the session that was lost: %w", err)
	}
	ch.settled.Store(true)
	return nil
}

func (ch *channel) quickOf(r *route) *quick {
	get := func(act action) func(*clientv3.GetResponse, error) (*clientv3.GetResponse, error) {
		return func(a *clientv3.GetResponse, err error) (*clientv3.GetResponse, error) {
			if err = ch.answered(read, act, err); err != nil {
				return nil, err
			}
			if r.strip {
				r.turnAll(a.Kvs)
			}
			return a, nil
		}
	}
	put := func(act action) func(*clientv3.PutResponse, error) (*clientv3.PutResponse, error) {
		return func(a *clientv3.PutResponse, err error) (*clientv3.PutResponse, error) {
			if err = ch.answered(update, act, err); err != nil {
				return nil, err
			}
			return a, nil
		}
	}
	return &quick{get: get(send), synced: get(sendSynced), put: put(send), leading: put(sendLeading)}
}

func (ch *channel) alive() bool {
	select {
	case <-ch.s.Done():
		return false
	default:
		return true
	}
}

func (ch *channel) counts() (sent, got int64) { return ch.l.sent.Load(), ch.l.got.Load() }
func (ch *channel) abandon()                  { ch.s.Abandon(ErrSilent) }

func (ch *channel) send(ctx context.Context, r *request) error {
	reader := ch.local
	if r.act == sendSynced {
		reader = ch.s.At(engine.Strict)
	}
	setLocal(r.message, false) // etcd's serializable is weaker than causal
	err := reader.SendThen(ctx, r.message, func(m proto.Message, err error) {
		if err = ch.answered(r.kind, r.act, err); err != nil {
			r.done(nil, err)
			return
		}
		if r.back != nil {
			m = r.back(m)
		}
		r.done(m, nil)
	})
	return ch.refused(err)
}

// get and put are send for one key. They need core.mu.
func (ch *channel) get(ctx context.Context, r *route, act action, key string) (*engine.Future[*clientv3.GetResponse], error) {
	ch.l.count(read)
	reader, then := ch.local, ch.quick[r].get
	if act == sendSynced {
		reader, then = ch.s.At(engine.Strict), ch.quick[r].synced
	}
	f, err := reader.GetThen(ctx, r.keyThere(key), then)
	return f, ch.withdrawn(err)
}

func (ch *channel) put(ctx context.Context, r *route, act action, key, val string) (*engine.Future[*clientv3.PutResponse], error) {
	ch.l.count(update)
	then := ch.quick[r].put
	if act == sendLeading {
		then = ch.quick[r].leading
	}
	f, err := ch.s.PutThen(ctx, r.keyThere(key), val, then)
	return f, ch.withdrawn(err)
}

func (ch *channel) withdrawn(err error) error {
	if err != nil {
		ch.l.sent.Add(-1)
		ch.l.core.algo.withdrawn(ch.l.cluster.at)
	}
	return ch.refused(err)
}

// sessionEnd is the reason for which a session has ended, as the error of a request that had no answer. It may have the code of a
// refusal: when the session's user is deleted, say.
type sessionEnd struct{ error }

func (e *sessionEnd) Unwrap() error { return e.error }

// told distinguishes the end of the session from an answer.
func (ch *channel) told(err error) error {
	if err == nil || ch.alive() || !errors.Is(err, ch.s.Err()) {
		return err
	}
	return &sessionEnd{err}
}

// refused wraps the error of a request that a session has not sent.
func (ch *channel) refused(err error) error {
	if err = ch.told(err); err == nil || !isCutOff(err) || errors.Is(err, client.ErrRequestTooLarge) {
		return err
	}
	return ch.l.cluster.named(plain(err), false)
}

// answered records an answer. The session calls it in the order of the
// requests.
//
// When the update or read that led is refused, the local reads behind it have no leading request, whether they were
// sent before or after that was known: they may be stale, and fail. An update or a synced read that follows
// leads those behind it.
func (ch *channel) answered(k kind, act action, err error) error {
	err = ch.told(err)
	switch {
	case err != nil && act != send:
		ch.unled.Store(true)
	case err == nil && (act != send || k == update):
		ch.unled.Store(false)
	case err == nil && ch.unled.Load():
		err = fmt.Errorf("%w: %w", ErrBehind, errUnled)
	}
	return ch.l.finish(k, err)
}

var errUnled = errors.New("it relied on the one before, to be as new")

func (ch *channel) saw(revision int64) { ch.s.See(revision) }
func (ch *channel) seen() int64 {
	if ch.void.Load() {
		return 0
	}
	return ch.s.Token()
}
func (ch *channel) hurry(by time.Time) { ch.l.core.watch.hurry(ch, by) }

func (ch *channel) close() {
	if ch.closed.Swap(true) {
		return
	}
	ch.l.core.watch.remove(ch)
	ctx, cancel := context.WithTimeout(context.Background(), ch.l.core.cfg.Timeout)
	defer cancel()
	_ = ch.s.Close(ctx) // else its lease expires
}
