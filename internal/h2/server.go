package h2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the default codec
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"
)

// MaxHeaderList bounds the headers of a call, in bytes, with 32 more for each: the default of Options. It is the bound of grpc-go's
// servers beside this one, too, whose own is 16 MiB: an index of one byte stands for up to 4 KiB.
const MaxHeaderList = 64 << 10

// Options configure a Server. The zero value of each is grpc-go's default, unless said
// otherwise.
type Options struct {
	Creds      credentials.TransportCredentials // nil: connections are taken as they are
	Codec      encoding.CodecV2                 // for all content subtypes; nil: protobuf
	BufferPool mem.BufferPool                   // for messages

	MaxRecvMessage int    // bytes of a message, 4 MiB
	MaxSendMessage int    // bytes of a message, 2 GiB
	MaxStreams     uint32 // calls of a connection at once; no limit
	MaxHeaderList  uint32 // bytes of a request's headers, 32 more for each; the constant
	StreamWindow   int32  // bytes that a client may send to a call ahead of its handler, 64 KiB
	ConnWindow     int32  // bytes under way to a connection, 1 MiB
	Room           Room   // for large headers, many calls without messages, and messages of unary calls that come in more than one frame; nil: no bound
	StreamRoom     Room   // for large headers of calls that may last: of streams, and of others behind their messages, and for calls whose answers wait; nil: Room

	PingInterval        time.Duration // clients' pings closer than this end the connection; 5 min
	PingsWithoutStreams bool          // they may come at that rate while no call is under way
	KeepAliveInterval   time.Duration // silence after which a ping is sent; 2 h
	KeepAliveTimeout    time.Duration // for its answer; 20 s
	MaxIdle             time.Duration // a connection without calls ends after; never
	MaxAge              time.Duration // any connection is shut down after; never
	MaxAgeGrace         time.Duration // for its calls to end then; forever

	// Field is told of each field of requests' headers; nil: no function is.
	Field func(name, value string)
	// Arrived is called when the headers of a request are there. Its error refuses the request.
	Arrived tap.ServerInHandle
	Unary   grpc.UnaryServerInterceptor
	Stream  grpc.StreamServerInterceptor
	// Unknown handles calls of methods that aren't registered, as streams. nil: they are refused.
	Unknown grpc.StreamHandler

	// Inline names unary methods, as "/service/method", whose handlers call [Detach] before they
	// wait for anything or take long, or return and answer by [Later]. They save a goroutine for
	// each call.
	Inline []string

	arriveWithin time.Duration // arriveWithin, but in tests
	slimEvery    time.Duration // likewise
}

func (o Options) withDefaults() Options {
	if o.Codec == nil {
		o.Codec = encoding.GetCodecV2("proto")
	}
	if o.BufferPool == nil {
		o.BufferPool = mem.DefaultBufferPool()
	}
	setDefault(&o.MaxRecvMessage, 4<<20)
	setDefault(&o.MaxSendMessage, math.MaxInt32)
	setDefault(&o.MaxStreams, math.MaxUint32)
	setDefault(&o.MaxHeaderList, MaxHeaderList)
	setDefault(&o.StreamWindow, defaultWindow)
	setDefault(&o.ConnWindow, 1<<20)
	setDefault(&o.PingInterval, 5*time.Minute)
	setDefault(&o.KeepAliveInterval, 2*time.Hour)
	setDefault(&o.KeepAliveTimeout, 20*time.Second)
	setDefault(&o.arriveWithin, arriveWithin)
	setDefault(&o.slimEvery, slimEvery)
	return o
}

func setDefault[T int | int32 | uint32 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// method is a registered method.
type method struct {
	impl    any
	unary   func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)
	stream  grpc.StreamHandler
	info    grpc.StreamServerInfo // of a stream
	inline  bool
	service string
}

// Server serves gRPC on the connections of its listeners.
type Server struct {
	o       Options
	room    *space // nil: there is always some
	streams *space // for streams' headers; likewise

	mu        sync.Mutex
	services  map[string]grpc.ServiceInfo
	methods   map[string]*method // by path; fixed once serving
	serving   bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	draining  bool
	running   sync.WaitGroup // listeners and connections
	answers   answers
}

// NewServer makes a server without services.
func NewServer(o Options) *Server {
	s := &Server{
		o: o.withDefaults(), services: map[string]grpc.ServiceInfo{}, methods: map[string]*method{},
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	if o.Room != nil {
		s.room = &space{Room: o.Room}
		s.streams = s.room
	}
	if o.StreamRoom != nil {
		s.streams = &space{Room: o.StreamRoom}
	}
	s.answers.idle.L = &s.answers.mu
	return s
}

// RegisterService implements grpc.ServiceRegistrar. As grpc-go's it panics if the service is
// there already, the server serves, or impl doesn't implement it.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	if impl != nil && d.HandlerType != nil {
		if t := reflect.TypeOf(d.HandlerType).Elem(); !reflect.TypeOf(impl).Implements(t) {
			panic(fmt.Sprintf("h2: the handler of type %T does not satisfy %v", impl, t))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.services[d.ServiceName]; ok || s.serving {
		panic("h2: service " + d.ServiceName + " is registered twice, or after Serve")
	}
	info := grpc.ServiceInfo{Metadata: d.Metadata}
	for _, m := range d.Methods {
		path := "/" + d.ServiceName + "/" + m.MethodName
		s.methods[path] = &method{impl: impl, unary: m.Handler, service: d.ServiceName, inline: slices.Contains(s.o.Inline, path)}
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
	}
	for _, m := range d.Streams {
		path := "/" + d.ServiceName + "/" + m.StreamName
		s.methods[path] = &method{
			impl: impl, stream: m.Handler, service: d.ServiceName,
			info: grpc.StreamServerInfo{FullMethod: path, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams},
		}
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
	}
	s.services[d.ServiceName] = info
}

// GetServiceInfo returns the registered services, for reflection.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.services)
}

// Serve serves the connections of a listener until Stop, GracefulStop or an error of the
// listener, which it returns; it closes the listener.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.serving = true
	if s.draining {
		s.mu.Unlock()
		l.Close()
		return grpc.ErrServerStopped
	}
	s.listeners[l] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	defer l.Close()
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.forget(l) {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return err
		}
		s.take(nc)
	}
}

// forget reports whether the listener was closed by the server.
func (s *Server) forget(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		delete(s.listeners, l)
	}
	return s.draining
}

// take serves a connection.
func (s *Server) take(nc net.Conn) {
	var c *conn
	c = newConn(s, nc, func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.running.Done()
	})
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	go c.serve()
}

// shut closes the listeners, and returns the connections.
func (s *Server) shut() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for l := range s.listeners {
		l.Close()
	}
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// GracefulStop takes no more connections and calls, and returns when all calls have ended.
func (s *Server) GracefulStop() {
	for _, c := range s.shut() {
		c.drain()
	}
	s.wait()
}

// Stop closes all connections and cancels the contexts of their calls.
func (s *Server) Stop() {
	for _, c := range s.shut() {
		c.fail(grpc.ErrServerStopped)
	}
	s.wait()
}

func (s *Server) wait() {
	s.running.Wait()
	s.answers.wait()
}
