package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// backoff waits before the n-th attempt in a row, not at all before the first.
func (s *Session) backoff(n int) {
	if n == 0 {
		return
	}
	d := min(minBackoff<<min(n-1, 10), maxBackoff)
	d = d/2 + rand.N(d)/2 // jitter
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// connect opens a stream on one of the members, trying them in turn. It fails
// only when the session has ended or can't be opened, or, with WithRefusal,
// when all members have refused for that time.
func (s *Session) connect() (*stream, error) {
	var last error
	since := time.Now() // the previous order may have led to the failed member
	for round := 0; ; round++ {
		s.backoff(round)
		refused := s.o.Refusal > 0
		for _, endpoint := range s.candidates(since) {
			if s.ctx.Err() != nil {
				return nil, either(last, s.ctx.Err())
			}
			st, err := s.attempt(endpoint)
			if err == nil {
				return st, nil
			}
			last = fmt.Errorf("%s: %w", endpoint, err)
			if s.hopeless(err) {
				return nil, last
			}
			refused = refused && errors.Is(err, ErrRefused)
		}
		if refused && time.Since(since) >= s.o.Refusal {
			return nil, last
		}
		if s.ctx.Err() != nil {
			return nil, either(last, s.ctx.Err())
		}
	}
}

// either is the first error that there is.
func either(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// candidates are the endpoints in the order in which to try them.
func (s *Session) candidates(since time.Time) []string {
	if len(s.o.Endpoints) > 0 {
		return s.o.Endpoints
	}
	return s.c.roster.order(s.ctx, since)
}

// hopeless reports errors that every other member would return too.
func (s *Session) hopeless(err error) bool {
	if s.renews(err) && (s.c.Username != "" || !lacksUser(err)) {
		return false
	}
	switch codeOf(err) {
	case codes.NotFound, codes.Aborted:
		return s.id != 0
	case codes.InvalidArgument:
		return true
	case codes.Unimplemented, codes.Unauthenticated:
		return s.id == 0 // later it has been accepted once
	case codes.PermissionDenied:
		return s.id == 0 || s.void // there is no such user any more
	case codes.ResourceExhausted:
		return s.id == 0 && strings.HasPrefix(status.Convert(err).Message(), tooMany)
	}
	return errors.Is(err, errMalformed) || errors.Is(err, ErrSessionClosed)
}

// renews reports that the server carries out nothing for the user with whom the stream was opened: its password has been set since
// the login, or there was no login, since permissions were not enforced. The next stream logs in anew, or can't.
func (s *Session) renews(err error) bool {
	return s.c.Token == "" && (errors.Is(rpctypes.Error(err), rpctypes.ErrAuthOldRevision) || lacksUser(err))
}

func lacksUser(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) }

// codeOf is the code of an error of a call, or of the login before it, which etcd's client has turned into
// one of its own, without a status.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// tooMany is the prefix of the servers' error for a cluster at its limit of
// sessions.
const tooMany = "stoa: too many sessions"

var errNoAnswer = status.Error(codes.Unavailable, "client: no answer in time")

// attempt opens a stream on one endpoint and waits until the server has taken the
// session on.
func (s *Session) attempt(endpoint string) (st *stream, err error) {
	conn, err := s.c.conns.acquire(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	late := time.AfterFunc(s.attemptFor(), func() { cancel(errNoAnswer) })
	defer late.Stop()
	defer func() {
		if err == nil {
			return
		}
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		cancel(nil)
		conn.release()
	}()
	s.streams.Add(1)
	cs, err := conn.NewStream(ctx, streamDesc, stoapb.Sessions_Open_FullMethodName, streamOptions...)
	if err != nil {
		if conn.GetState() == connectivity.TransientFailure {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return nil, err
	}
	st = &stream{ClientStream: cs, conn: conn, ctx: ctx, cancel: cancel, opened: time.Now(), written: make(chan struct{})}
	if err := cs.SendMsg(s.hello()); err != nil {
		// SendMsg knows only that the stream has ended.
		if e := cs.RecvMsg(new(inbound)); e != nil {
			err = e
		}
		return nil, err
	}
	if err := s.welcome(st); err != nil {
		return nil, err
	}
	if !late.Stop() {
		return nil, errNoAnswer
	}
	return st, nil
}

// attemptFor bounds one attempt: a resuming session tries several members
// within its ttl.
func (s *Session) attemptFor() time.Duration {
	d := s.c.cfg.DialTimeout
	if s.id != 0 {
		d = min(d, max(s.ttl/4, 300*time.Millisecond))
	}
	return d
}

// hello is the first message of a stream.
func (s *Session) hello() *stoapb.ClientBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := &stoapb.OpenSession{
		Session:      s.id,
		Next:         s.backlog.first,
		Sent:         s.backlog.carried,
		Revision:     s.token.Load(),
		PartitionMap: true,
		Stream:       s.streams.Load(),
	}
	if s.id == 0 {
		open.Ttl = int64(math.Ceil(s.o.TTL.Seconds()))
	}
	for _, seq := range sortedKeys(s.watches) {
		open.Watches = append(open.Watches, s.watches[seq].resume(seq))
	}
	return &stoapb.ClientBatch{Open: open, Answered: s.backlog.first - 1}
}

// welcome takes in the server's first message.
func (s *Session) welcome(st *stream) error {
	var in inbound
	if err := st.RecvMsg(&in); err != nil {
		return err
	}
	var batch serverBatch
	if err := batch.read(in.data.ReadOnlyData(), &st.from); err != nil {
		return err
	}
	o := batch.opened
	if o == nil || s.id != 0 && o.Session != s.id {
		return fmt.Errorf("%w: a stream that doesn't begin with its session", errMalformed)
	}
	if len(batch.arrivals) > 0 {
		st.first = &in // events of watches; read takes them in
	} else {
		in.data.Free()
	}
	st.from = origin{cluster: o.ClusterId, member: o.MemberId, term: o.RaftTerm}
	st.window, st.windowBytes = math.MaxInt, math.MaxInt
	if o.WindowRequests > 0 {
		st.window = int(o.WindowRequests)
	}
	if o.WindowBytes > 0 {
		st.windowBytes = int(o.WindowBytes)
	}
	if o.PartitionMap != nil {
		s.c.placement.learn(o.PartitionMap)
	}
	if s.id == 0 {
		s.id, s.ttl = o.Session, time.Duration(o.Ttl)*time.Second
	}
	return nil
}

// resume requests a watch again, after its last event, and after what the others have shown if it is ordered: else one on which
// nothing happens for long would ask for what is compacted.
func (w *Watch) resume(seq uint64) *stoapb.Request {
	ask := proto.Clone(w.ask).(*pb.WatchCreateRequest)
	ask.StartRevision = w.next
	if w.level != Fast {
		ask.StartRevision = max(w.next, w.s.through)
	}
	body, err := proto.Marshal(ask)
	if err != nil {
		panic(err) // it was marshalled before
	}
	return &stoapb.Request{Seq: seq, Kind: stoapb.Kind_WATCH, Level: stoapb.Level(w.level), Body: body}
}
