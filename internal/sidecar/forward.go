package sidecar

import (
	"context"
	"errors"
	"io"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A forwarder carries calls out as calls of their own.
type forwarder struct {
	up      *upstream
	options []grpc.CallOption
	// wait has calls wait for a member, until their deadline; otherwise they fail while none can be reached.
	wait bool
}

// conn is the connection for a call.
func (f *forwarder) conn(ctx context.Context, token bool) (*grpc.ClientConn, error) {
	conn, err := f.up.conn(token)
	if err == nil || !f.wait {
		return conn, err
	}
	select {
	case <-f.up.authenticated:
		return f.up.conn(token)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// with are the options of a call.
func (f *forwarder) with(more ...grpc.CallOption) []grpc.CallOption {
	return slices.Concat(f.options, []grpc.CallOption{grpc.WaitForReady(f.wait)}, more)
}

// unary forwards a call with one request and one answer.
func (f *forwarder) unary(ctx context.Context, method string, in *frame) (*frame, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	conn, err := f.conn(ctx, hasToken(md))
	if err != nil {
		return nil, err
	}
	out := new(frame)
	var header, trailer metadata.MD
	err = conn.Invoke(outgoing(ctx, md), method, in, out, f.with(grpc.Header(&header), grpc.Trailer(&trailer))...)
	_ = grpc.SetHeader(ctx, passed(header))
	_ = grpc.SetTrailer(ctx, passed(trailer))
	if err != nil {
		return nil, asStatus(err)
	}
	return out, nil
}

// anyStream is the kind of stream of which all others, and unary calls, are cases.
var anyStream = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// stream forwards a call of any kind. The requests are copied by a goroutine of their own,
// which ends when this method does.
func (f *forwarder) stream(ctx context.Context, method string, local grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(ctx)
	conn, err := f.conn(ctx, hasToken(md))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(outgoing(ctx, md))
	defer cancel()
	remote, err := conn.NewStream(ctx, anyStream, method, f.with()...)
	if err != nil {
		return asStatus(err)
	}
	go func() {
		if copyRequests(local, remote) != nil {
			cancel()
		}
	}()
	err = copyAnswers(local, remote)
	local.SetTrailer(passed(remote.Trailer()))
	return err
}

// copyRequests returns an error if the local client is lost; a failure of the other side has
// its reason where answers are received.
func copyRequests(local grpc.ServerStream, remote grpc.ClientStream) error {
	for {
		var m frame
		err := local.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			_ = remote.CloseSend()
			return nil
		}
		if err != nil {
			return err
		}
		if remote.SendMsg(&m) != nil {
			return nil
		}
	}
}

func copyAnswers(local grpc.ServerStream, remote grpc.ClientStream) error {
	header, err := remote.Header()
	if err == nil && len(header) > 0 {
		err = local.SetHeader(passed(header))
	}
	for err == nil {
		var m frame
		if err = remote.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = local.SendMsg(&m)
		}
	}
	return asStatus(err)
}

// asStatus turns errors of etcd's client back into what a member has answered.
func asStatus(err error) error {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return status.Error(known.Code(), known.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
