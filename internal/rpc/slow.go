package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/memory"
)

// clock is nanoseconds since the server was made. It costs half as much as time.Now.
func (s *Server) clock() time.Duration { return time.Since(s.since) }

// capture keeps the request that a handler decodes, for a warning that it was slow, and holds
// the memory that it takes. A closure in its place would be allocated for each call.
type capture struct {
	dec func(any) error
	req any
	fn  func(any) error // keep

	memory  *memory.Budget
	held    int64 // bytes of memory
	refused bool  // they weren't there

	// The pool keeps a capture on the core that it was last used on, and with it the part
	// of the counters that the core writes to.
	stripe uint32
}

var captures = sync.Pool{New: func() any {
	c := &capture{stripe: nextStripe()}
	c.fn = c.keep
	return c
}}

func (c *capture) keep(m any) error {
	c.req = m
	err := c.dec(c) // comes back to decode
	if c.refused {
		c.req = nil
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	return err
}

func (c *capture) release() {
	c.memory.Give(c.held)
	c.memory.End(c.stripe)
	c.dec, c.req, c.memory, c.held, c.refused = nil, nil, nil, 0, false
	captures.Put(c)
}

// warnOfSlow logs a slow unary request, with etcd's text and fields. A line that the log
// drops because there are too many costs nothing more: an overloaded server has many.
func (s *Server) warnOfSlow(ctx context.Context, c *call, took time.Duration, req, resp any) {
	line := s.o.Logger.Check(zap.WarnLevel, "request stats")
	if line == nil {
		return
	}
	remote := "No remote client info."
	if p, ok := peer.FromContext(ctx); ok {
		remote = p.Addr.String()
	}
	st := statsOf(req, resp)
	line.Write(
		zap.Time("start time", time.Now().Add(-took)), zap.Duration("time spent", took),
		zap.String("remote", remote), zap.String("response type", c.name),
		zap.Int64("request count", st.requests), zap.Int("request size", st.requestSize),
		zap.Int64("response count", st.responses), zap.Int("response size", st.responseSize),
		zap.String("request content", st.content))
}

type stats struct {
	requests, responses       int64
	requestSize, responseSize int
	content                   string // without values
}

// statsOf counts as etcd does.
func statsOf(req, resp any) stats {
	switch r := req.(type) {
	case *pb.RangeRequest:
		st := stats{requestSize: proto.Size(r), content: r.String()}
		if a, ok := resp.(*kvwire.RangeResponse); ok {
			st.responses, st.responseSize = a.Count, a.Size()
		}
		return st
	case *pb.PutRequest:
		return stats{requests: 1, requestSize: proto.Size(r), responseSize: sizeOf(resp), content: fmt.Sprint(pb.NewLoggablePutRequest(r))}
	case *pb.DeleteRangeRequest:
		st := stats{requestSize: proto.Size(r), responseSize: sizeOf(resp), content: r.String()}
		if a, ok := resp.(*pb.DeleteRangeResponse); ok {
			st.responses = a.GetDeleted()
		}
		return st
	case *pb.TxnRequest:
		st := stats{responseSize: sizeOf(resp), content: pb.NewLoggableTxnRequest(r).String()}
		ops := r.GetFailure()
		if a, ok := resp.(*pb.TxnResponse); ok && a.GetSucceeded() {
			ops = r.GetSuccess()
		}
		st.requests = int64(len(ops))
		for _, op := range ops {
			st.requestSize += proto.Size(op)
		}
		return st
	}
	return stats{-1, -1, -1, -1, ""}
}

func sizeOf(resp any) int {
	if m, ok := resp.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}
