package sidecar

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/sidecar/front"
	"github.com/stoa-kv/stoa/internal/sidecar/keepalive"
)

const (
	// keepAliveWays is the number of streams to members. Each carries one renewal at a time: one that
	// waits at a member, for a lease that is being revoked, holds up none behind it.
	keepAliveWays = 8
	// While renewals that are under way take longer than slowRenewal, since the members are far or these leases are being revoked, and others wait,
	// there is another stream for each of them, up to so many.
	moreWays    = 56
	slowRenewal = 10 * time.Millisecond
)

// keepAlives are the keep-alives of local clients, renewed over few streams.
type keepAlives struct {
	up      *upstream
	m       *metrics
	options []grpc.CallOption
	leader  bool // the streams require a leader, as clientv3's do

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	hub    *keepalive.Hub
	wanted *sync.Cond // there is something to take, or ctx has ended
	more   int        // ways beside those that are always there
	slow   int        // ways whose renewal takes longer than slowRenewal
	idle   int        // ways that wait for a lease
}

func openKeepAlives(f *forwarder, leader bool, m *metrics) *keepAlives {
	k := &keepAlives{up: f.up, m: m, options: f.options, leader: leader}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.wanted = sync.NewCond(&k.mu)
	k.hub = keepalive.New(func() {
		k.wanted.Signal()
		k.grow()
	})
	for range keepAliveWays {
		k.wg.Go(func() { k.renew(k.take) })
	}
	return k
}

func (k *keepAlives) close() {
	k.mu.Lock()
	k.cancel()
	k.wanted.Broadcast()
	k.mu.Unlock()
	k.wg.Wait()
}

func (k *keepAlives) stats() keepalive.Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hub.Stats()
}

// take waits for a lease to renew.
func (k *keepAlives) take() (id int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.ctx.Err() == nil {
		if id, ok = k.hub.Take(); ok {
			return id, true
		}
		k.idle++
		k.wanted.Wait()
		k.idle--
	}
	return 0, false
}

// late is for a renewal that takes longer than slowRenewal.
func (k *keepAlives) late() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow++
	k.grow()
}

// grow adds a way if a lease waits to be renewed, and renewals that take long have left fewer than keepAliveWays. It needs mu.
func (k *keepAlives) grow() {
	if k.ctx.Err() == nil && k.idle == 0 && k.more < min(k.slow, moreWays) && k.hub.Waiting() {
		k.more++
		k.wg.Go(func() { k.renew(k.takeOrEnd) })
	}
}

// takeOrEnd is take for an added way, which ends when no lease waits.
func (k *keepAlives) takeOrEnd() (id int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() == nil {
		id, ok = k.hub.Take()
	}
	if !ok {
		k.more--
	}
	return id, ok
}

// renew carries renewals over one stream to a member, and opens that again when it has ended.
func (k *keepAlives) renew(take func() (id int64, ok bool)) {
	var way *renewals
	for id, ok := take(); ok; id, ok = take() {
		slow := time.AfterFunc(slowRenewal, k.late)
		old := way != nil
		answer, err := k.try(&way, id)
		if err != nil && (old || err == errSilent) {
			// The stream may have ended long ago, or its member be slow. A renewal may be repeated.
			answer, err = k.try(&way, id)
		}
		intime := slow.Stop()
		k.m.renewals.Inc()
		k.mu.Lock()
		if !intime {
			k.slow-- // late may come behind this
		}
		if err == nil {
			k.hub.Renewed(id, answer)
		} else {
			k.hub.Lost(id, err)
			if errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
				k.hub.Fail(err)
			}
		}
		k.mu.Unlock()
	}
	if way != nil {
		way.cancel()
	}
}

// renewalTimeout is the silence of a member after which its stream is given up, long before its
// connection is: all leases share these streams.
const renewalTimeout = 2 * time.Second

var errSilent = status.Error(codes.Unavailable, "stoa sidecar: a member doesn't answer keep-alives")

// renewals is a stream to a member.
type renewals struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

// try renews a lease over a stream, which it opens if there is none, and ends upon an error.
func (k *keepAlives) try(way **renewals, id int64) (answer []byte, err error) {
	if *way == nil {
		if *way, err = k.connect(); err != nil {
			return nil, asStatus(err)
		}
	}
	if answer, err = (*way).renew(id); err != nil {
		(*way).cancel()
		*way = nil
		return nil, asStatus(err)
	}
	return answer, nil
}

func (k *keepAlives) connect() (*renewals, error) {
	conn, err := k.up.conn(false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(k.ctx)
	if k.leader {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	}
	remote, err := conn.NewStream(ctx, anyStream, pb.Lease_LeaseKeepAlive_FullMethodName, k.options...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &renewals{remote, cancel}, nil
}

func (r *renewals) renew(id int64) (answer []byte, err error) {
	silent := time.AfterFunc(renewalTimeout, r.cancel)
	defer func() {
		if !silent.Stop() && err != nil {
			err = errSilent
		}
	}()
	// An error in sending has its reason where answers are received.
	if err := r.SendMsg(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var m frame
	if err := r.RecvMsg(&m); err != nil {
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, io.ErrUnexpectedEOF.Error())
		}
		return nil, err
	}
	return m.data, nil
}

// keepAliveStream is a local client's.
type keepAliveStream struct {
	k     *keepAlives
	ctx   context.Context
	local grpc.ServerStream
	st    *keepalive.Stream
	ended bool          // the client asks for nothing more; guarded by keepAlives.mu
	ready chan struct{} // there may be something to send
	drain chan struct{} // something was sent
}

// programOf is whose a stream is: its connection's, for a program has one. Without any, it is one by itself.
func programOf(ctx context.Context, stream any) any {
	if c := front.Of(ctx); c != nil {
		return c
	}
	return stream
}

// serve carries out a local client's stream.
func (k *keepAlives) serve(ctx context.Context, local grpc.ServerStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &keepAliveStream{k: k, ctx: ctx, local: local, ready: make(chan struct{}, 1), drain: make(chan struct{}, 1)}
	k.mu.Lock()
	l.st = k.hub.Open(programOf(ctx, l), func() { signal(l.ready) })
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		l.st.Close()
		k.mu.Unlock()
	}()
	go func() {
		if err := l.receive(); !errors.Is(err, io.EOF) {
			cancel(err)
			return
		}
		k.mu.Lock()
		l.ended = true
		k.mu.Unlock()
		signal(l.ready)
	}()
	return asStatus(l.send())
}

func (l *keepAliveStream) send() error {
	for {
		l.k.mu.Lock()
		answer, err := l.st.Next()
		over := l.ended && l.st.Idle()
		l.k.mu.Unlock()
		switch {
		case err != nil:
			return err
		case answer != nil:
			l.k.m.keptAlive.Inc()
			if err := l.local.SendMsg(&frame{answer}); err != nil {
				return err
			}
			signal(l.drain)
		case over:
			return nil
		default:
			select {
			case <-l.ready:
			case <-l.ctx.Done():
				return context.Cause(l.ctx)
			}
		}
	}
}

func (l *keepAliveStream) receive() error {
	for {
		var m frame
		if err := l.local.RecvMsg(&m); err != nil {
			return err
		}
		r := new(pb.LeaseKeepAliveRequest)
		if err := proto.Unmarshal(m.data, r); err != nil {
			return err
		}
		for !l.take(r.ID) {
			select {
			case <-l.drain:
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
	}
}

// take has a lease renewed, unless the client has to read first.
func (l *keepAliveStream) take(id int64) bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if l.st.Full() {
		return false
	}
	l.st.Ask(id)
	return true
}
