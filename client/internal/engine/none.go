package engine

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNoSession: there is no session.
var ErrNoSession = errors.New("client: there is no session; Client.Session opens one")

// None is the session of a zero value: one that has ended before it was open.
func None() *Session {
	ended := make(chan struct{})
	close(ended)
	s := &Session{
		c: &Client{Client: nowhere(), cfg: Config{}.withDefaults()}, done: ended, stopped: ended, wake: make(chan struct{}, 1),
		backlog: backlog{first: 1}, err: ErrNoSession,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Reader = Reader{s: s}
	return s
}

// NoBatch is the batch of a zero value.
func NoBatch() *Batch { return None().Batch(false) }

// nowhere is an etcd client whose calls fail without trying to connect.
var nowhere = sync.OnceValue(func() *clientv3.Client {
	none := status.Error(codes.FailedPrecondition, ErrNoSession.Error())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"nowhere.invalid:0"}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return none
		}),
		grpc.WithChainStreamInterceptor(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, none
		}),
	}})
	if err != nil {
		panic(err) // it depends on nothing
	}
	return c
})
