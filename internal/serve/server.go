package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Options configure a Server. Without GRPC a port carries HTTP alone, and the
// other way round.
type Options struct {
	GRPC       *grpc.Server // made with Credentials
	Direct     GRPC         // for connections that carry nothing but gRPC; nil: GRPC
	HTTP       http.Handler
	TLS        *TLS   // needed by secure ports
	MaxStreams uint32 // per HTTP/2 connection
	Traffic    *Traffic
	Scarce     Scarce // of gRPC connections; nil: memory never is
	Logger     *zap.Logger
}

// GRPC is a gRPC server.
type GRPC interface {
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

// A Server serves ports, all of them the same.
type Server struct {
	o       Options
	http    *http.Server
	viaHTTP atomic.Bool     // some gRPC came through net/http
	ctx     context.Context // ends when Stop begins
	cancel  context.CancelFunc
	errs    chan error
	wg      sync.WaitGroup

	mu    sync.Mutex
	ports []*Port
	fresh map[net.Conn]struct{} // connections of unknown protocol yet
	inner []*handOver
	grpc  map[*conn]struct{} // connections that carry gRPC

	memory *handOver // connections within the process
}

// New makes a server; Serve opens it to connections.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Server{o: o, fresh: map[net.Conn]struct{}{}, grpc: map[*conn]struct{}{}, errs: make(chan error, 1), memory: newHandOver(memoryAddr{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if o.Direct == nil && o.GRPC != nil {
		s.o.Direct = o.GRPC
	}
	if o.HTTP != nil {
		s.o.HTTP = s.followed(o.HTTP)
		s.http = &http.Server{
			Handler:           s.withGRPC(),
			ReadHeaderTimeout: 5 * time.Minute,
			MaxHeaderBytes:    maxHeaders,
			ErrorLog:          log.New(io.Discard, "", 0), // clients' mistakes
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: int(min(o.MaxStreams, math.MaxInt32))},
		}
	}
	return s
}

// maxHeaders bounds the headers of a request, in bytes, as those of calls that don't come through net/http are. Its own limit is 1 MiB, which a
// client may have with few hundred bytes: an index of one byte stands for up to 4 KiB.
const maxHeaders = 64 << 10

// withGRPC lets HTTP/2 over TLS reach the gRPC server, for clients that offer
// HTTP/1 and HTTP/2 at once.
func (s *Server) withGRPC() http.Handler {
	if s.o.GRPC == nil {
		return s.o.HTTP
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			s.viaHTTP.Store(true)
			s.o.GRPC.ServeHTTP(w, r)
			return
		}
		s.o.HTTP.ServeHTTP(w, r)
	})
}

// Serve starts to accept connections, and returns.
func (s *Server) Serve(ports ...*Port) error {
	for _, p := range ports {
		if p.secure && s.o.TLS == nil {
			return fmt.Errorf("TLS key/cert must be provided for %s with HTTPS scheme", p.URL.String())
		}
	}
	for _, p := range ports {
		forGRPC, forHTTP := newHandOver(p.Addr()), newHandOver(p.Addr())
		s.mu.Lock()
		s.ports = append(s.ports, p)
		s.inner = append(s.inner, forGRPC, forHTTP)
		s.mu.Unlock()
		if s.o.GRPC != nil {
			s.run(func() error { return s.o.Direct.Serve(forGRPC) })
		}
		if s.http != nil {
			s.run(func() error { return s.http.Serve(forHTTP) })
		}
		s.run(func() error { return s.accept(p, forGRPC, forHTTP) })
	}
	if s.o.GRPC != nil {
		s.run(func() error { return s.o.GRPC.Serve(s.memory) })
	}
	return nil
}

// Dial connects to the gRPC server within the process, without a socket. It waits for
// Serve.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.memory.conns <- &conn{Conn: server, traffic: s.o.Traffic}:
		return client, nil
	case <-s.memory.done:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Err yields the first error that closed a port without a call of Stop.
func (s *Server) Err() <-chan error { return s.errs }

func (s *Server) run(f func() error) {
	s.wg.Go(func() {
		err := f()
		if s.ctx.Err() != nil || err == nil || errors.Is(err, http.ErrServerClosed) {
			return
		}
		select {
		case s.errs <- err:
		default:
		}
	})
}

func (s *Server) accept(p *Port, forGRPC, forHTTP *handOver) error {
	for {
		raw, err := p.ln.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() && s.ctx.Err() == nil {
				s.o.Logger.Warn("accepting a connection failed", zap.Stringer("address", p.Addr()), zap.Error(err))
				time.Sleep(10 * time.Millisecond) // out of file descriptors, most likely
				continue
			}
			return fmt.Errorf("accepting connections at %s: %w", p.Addr(), err)
		}
		if !s.track(raw) {
			raw.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.untrack(raw)
			if err := s.route(p, raw, forGRPC, forHTTP); err != nil {
				raw.Close()
			}
		})
	}
}

// route detects a connection's protocol and hands it to the server of that
// protocol.
func (s *Server) route(p *Port, raw net.Conn, forGRPC, forHTTP *handOver) error {
	if err := raw.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	c := &conn{Conn: raw}
	var out net.Conn = c
	var isGRPC bool
	switch {
	case p.secure && (!p.plain || c.peek(1) == nil && c.head[0] == tlsHandshakeByte):
		ctx, cancel := context.WithTimeout(s.ctx, helloTimeout) // also for a peer's names, which no deadline of the connection ends
		secure := s.o.TLS.handshake(ctx, c, s.o.Logger)
		cancel()
		if secure == nil {
			return errClosed
		}
		out, isGRPC = secure, s.speaksGRPC(c, secure)
	case s.o.HTTP == nil:
		isGRPC = true
	case s.o.GRPC != nil:
		var err error
		if isGRPC, err = c.isHTTP2(); err != nil {
			return err
		}
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.untrack(raw) // before it is in use: Stop closes those that aren't
	if isGRPC {
		c.traffic, c.scarce = s.o.Traffic, s.o.Scarce
		s.remember(c)
		return forGRPC.give(out)
	}
	return forHTTP.give(out)
}

func (s *Server) speaksGRPC(c *conn, secure *tls.Conn) bool {
	switch {
	case s.o.GRPC == nil:
		return false
	case s.o.HTTP == nil:
		return true
	}
	return c.grpcOnly && secure.ConnectionState().NegotiatedProtocol == "h2"
}

func (s *Server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.fresh[c] = struct{}{}
	return true
}

func (s *Server) untrack(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fresh, c)
}

// Stop is a graceful shutdown: it refuses new connections, lets requests
// finish until ctx ends, and then closes the remaining connections: watches
// never end by themselves. Websockets end at once, and their clients are told.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.cancel()
	ports, inner := s.ports, s.inner
	for c := range s.fresh {
		c.Close()
	}
	s.mu.Unlock()
	CloseAll(ports)

	var wg sync.WaitGroup
	if s.http != nil {
		wg.Go(func() {
			if s.http.Shutdown(ctx) != nil {
				s.http.Close()
			}
		})
	}
	if s.o.GRPC != nil {
		if s.o.Direct != s.o.GRPC {
			wg.Go(func() { stopGRPC(ctx, s.o.Direct) })
		}
		if !s.viaHTTP.Load() {
			wg.Go(func() { stopGRPC(ctx, s.o.GRPC) })
		}
	}
	wg.Wait()
	if s.o.GRPC != nil {
		s.o.GRPC.Stop() // grpc-go can't drain what came through net/http
	}
	for _, l := range append(inner, s.memory) {
		l.Close()
	}
	s.wg.Wait()
}

func stopGRPC(ctx context.Context, g GRPC) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		g.Stop()
		<-done
	}
}
