package sidecar

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/sidecar/namespace"
)

// translator has local clients see the keys of a namespace only. It stands before all else:
// behind it there are only keys of the cluster.
type translator struct{ of *namespace.Namespace }

// carrying carries out a call with one request.
type carrying = func(ctx context.Context, method string, in *frame) (*frame, error)

var (
	errSessionsInNamespace = status.Error(codes.Unimplemented, "stoa sidecar: sessions are not served with --namespace: their requests are not translated")
	errUnknownInNamespace  = status.Error(codes.Unimplemented, "stoa sidecar: with --namespace, only methods that this release knows are served")
)

// refused is the error of methods that can't be translated.
func (t *translator) refused(path string) (m namespace.Method, err error) {
	if path == stoapb.Sessions_Open_FullMethodName {
		return m, errSessionsInNamespace
	}
	m, known := t.of.Method(path)
	if !known {
		return m, errUnknownInNamespace
	}
	return m, nil
}

// unary has carry see the cluster's keys.
func (t *translator) unary(path string, carry carrying) carrying {
	m, refused := t.refused(path)
	return func(ctx context.Context, method string, in *frame) (*frame, error) {
		if refused != nil {
			return nil, refused
		}
		if err := apply(m.Request, in); err != nil {
			return nil, err
		}
		out, err := carry(ctx, method, in)
		if err == nil {
			err = apply(m.Answer, out)
		}
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// stream does the same for streams.
func (t *translator) stream(path string) func(st grpc.ServerStream, carry func(grpc.ServerStream) error) error {
	m, refused := t.refused(path)
	return func(st grpc.ServerStream, carry func(grpc.ServerStream) error) error {
		if refused != nil {
			return refused
		}
		translated := &translatedStream{ServerStream: st, of: m}
		if err := carry(translated); err != nil {
			return translated.reason(err)
		}
		return nil
	}
}

// translatedStream is a local client's stream with the cluster's keys.
type translatedStream struct {
	grpc.ServerStream
	of namespace.Method

	mu     sync.Mutex
	failed error // of a request that can't be translated
}

func (s *translatedStream) RecvMsg(m any) error {
	f := m.(*frame)
	if err := s.ServerStream.RecvMsg(f); err != nil {
		return err
	}
	err := apply(s.of.Request, f)
	if err != nil {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
	}
	return err
}

func (s *translatedStream) SendMsg(m any) error {
	f := &frame{m.(*frame).data}
	if err := apply(s.of.Answer, f); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(f)
}

// reason is the error of a stream that has ended with err.
func (s *translatedStream) reason(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	return err
}

func apply(t *namespace.Translation, f *frame) error {
	data, err := t.Apply(f.data)
	if err != nil {
		code := codes.Internal // as for messages that gRPC can't decode
		switch {
		case errors.Is(err, namespace.ErrUnknown):
			code = codes.Unimplemented
		case errors.Is(err, namespace.ErrTooDeep):
			code = codes.InvalidArgument
		}
		return status.Errorf(code, "stoa sidecar: --namespace: %v", err)
	}
	f.data = data
	return nil
}
