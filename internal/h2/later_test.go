package h2_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/h2"
)

// postponed is a service whose calls wait for the test.
type postponed struct {
	service
	calls    chan *waitingCall
	hold     chan struct{} // not nil: calls wait for it, and tell held, before they do anything
	held     chan struct{}
	finished atomic.Int64
	writes   atomic.Int64
}

type waitingCall struct {
	ready func(func() (any, error))
	err   chan error // what finish has got
}

func (s *postponed) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	if s.hold != nil {
		s.held <- struct{}{}
		<-s.hold
	}
	w := &waitingCall{err: make(chan error, 2)}
	ready, ok := h2.Later(ctx, func(_ any, err error) {
		s.finished.Add(1)
		w.err <- err
	})
	if !ok {
		return nil, status.Error(codes.Internal, "it can't be answered later")
	}
	if _, again := h2.Later(ctx, nil); again {
		return nil, status.Error(codes.Internal, "it is answered later twice")
	}
	w.ready = ready
	s.calls <- w
	return nil, status.Error(codes.Internal, "what the handler returns is ignored")
}

func (w *waitingCall) done() {
	w.ready(func() (any, error) { return &grpc_testing.SimpleResponse{Hostname: "later"}, nil })
}

func newPostponed(t *testing.T, o h2.Options) (*postponed, *rig) {
	if o.Inline == nil {
		o.Inline = inline
	}
	p := &postponed{calls: make(chan *waitingCall, 1000), held: make(chan struct{}, 1000)}
	s := h2.NewServer(o)
	grpc_testing.RegisterTestServiceServer(s, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return p, serveOn(t, s, &p.service, &countingListener{l, &p.writes})
}

// countingListener counts how often its connections are written to.
type countingListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return &countingConn{nc, l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// Calls that wait hold up nothing, and are answered, whichever goroutine their handlers were on:
// with an answer, and with an error.
func TestLater(t *testing.T) {
	for name, methods := range map[string][]string{"inline": inline, "goroutine": {}} {
		t.Run(name, func(t *testing.T) {
			p, r := newPostponed(t, h2.Options{Inline: methods})
			var clients sync.WaitGroup
			for i := range 200 {
				clients.Go(func() {
					resp, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{})
					if i := resp.GetHostname(); err == nil && i != "later" || err != nil && status.Code(err) != codes.Aborted {
						t.Errorf("answered by %q, %v", i, err)
					}
				})
				if i%2 == 0 {
					_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
					require.NoError(t, err)
				}
			}
			for i := range 200 {
				w := <-p.calls
				if i%3 == 0 {
					w.ready(func() (any, error) { return nil, status.Error(codes.Aborted, "") })
				} else {
					w.done()
				}
				w.done() // the second time it means nothing
			}
			clients.Wait()
			require.EqualValues(t, 200, p.finished.Load())
		})
	}
}

// A call whose deadline passes, or that its client cancels, is answered without its handler; what
// comes for it then is dropped.
func TestLaterThanTheCall(t *testing.T) {
	p, r := newPostponed(t, h2.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	w := <-p.calls
	require.Error(t, <-w.err) // the client may have been faster to cancel it
	w.done()

	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		w = <-p.calls
		cancel()
	}()
	_, err = r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Equal(t, context.Canceled, <-w.err)
	w.done()
	_, err = r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
	require.EqualValues(t, 2, p.finished.Load())
}

// The deadline is the server's matter, too: a client that only waits gets DEADLINE_EXCEEDED.
func TestDeadlineOfALateCall(t *testing.T) {
	_, r := newPostponed(t, h2.Options{})
	w := dialWire(t, r.addr)
	w.begin(1, "UnaryCall", "grpc-timeout", "20m")
	require.NoError(t, w.WriteData(1, true, make([]byte, 5)))
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := w.ReadFrame()
		require.NoError(t, err)
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			require.True(t, h.StreamEnded())
			require.Contains(t, h.Fields, hpack.HeaderField{Name: "grpc-status", Value: "4"})
			return
		}
	}
}

// GracefulStop waits for the answer, Stop doesn't: then finish is told that the call was cancelled,
// before Stop returns.
func TestStopsAndLateCalls(t *testing.T) {
	for name, graceful := range map[string]bool{"graceful": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			p, r := newPostponed(t, h2.Options{})
			result := make(chan error, 1)
			go func() {
				_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{})
				result <- err
			}()
			w := <-p.calls
			if !graceful {
				r.Stop()
				require.EqualValues(t, 1, p.finished.Load())
				require.Equal(t, context.Canceled, <-w.err)
				require.Error(t, <-result)
				w.done()
				return
			}
			stopped := make(chan struct{})
			go func() {
				r.GracefulStop()
				close(stopped)
			}()
			require.Eventually(t, func() bool { // it takes no more connections
				nc, err := net.Dial("tcp", r.addr)
				if err == nil {
					nc.Close()
				}
				return err != nil
			}, 10*time.Second, 10*time.Millisecond)
			require.Empty(t, stopped)
			w.done()
			require.NoError(t, <-result)
			<-stopped
		})
	}
}

// A handler whose call has ended comes to Later only when its server stops, or has stopped: finish is called
// nevertheless.
func TestLaterThanStop(t *testing.T) {
	for i := range 20 {
		p, r := newPostponed(t, h2.Options{Inline: []string{}})
		p.hold = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
			result <- err
		}()
		<-p.held
		cancel()
		require.Error(t, <-result)
		time.AfterFunc(time.Duration(i)*time.Millisecond, func() { close(p.hold) })
		r.Stop()
		require.Error(t, <-(<-p.calls).err)
	}
}

// Answers that are ready together are written with one call of the system for each connection.
func TestLateAnswersLeaveTogether(t *testing.T) {
	const calls = 200
	p, r := newPostponed(t, h2.Options{})
	var clients sync.WaitGroup
	for range calls {
		clients.Go(func() {
			_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all := make([]*waitingCall, calls)
	for i := range all {
		all[i] = <-p.calls
	}
	before := p.writes.Load()
	// The first answer holds up the others: they become one event.
	hold := make(chan struct{})
	all[0].ready(func() (any, error) {
		<-hold
		return &grpc_testing.SimpleResponse{}, nil
	})
	for _, c := range all[1:] {
		c.done()
	}
	close(hold)
	clients.Wait()
	require.Less(t, p.writes.Load()-before, int64(20)) // some answer pings
}

// Outside of such a call nothing can be answered later.
func TestLaterElsewhere(t *testing.T) {
	_, ok := h2.Later(context.Background(), nil)
	require.False(t, ok)
}
