package rpc

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/session"
)

// reads are the methods that change nothing and hand out nothing beyond what permissions on
// keys allow: they are in the audit log only when they are refused. All others, also those
// that come to be, always are.
var reads = map[string]bool{
	"/etcdserverpb.KV/Range":              true,
	"/etcdserverpb.KV/RangeStream":        true,
	"/etcdserverpb.Watch/Watch":           true,
	"/etcdserverpb.Lease/LeaseKeepAlive":  true,
	"/etcdserverpb.Lease/LeaseTimeToLive": true,
	"/etcdserverpb.Lease/LeaseLeases":     true,
	"/etcdserverpb.Cluster/MemberList":    true,
	"/etcdserverpb.Maintenance/Status":    true,
	"/etcdserverpb.Maintenance/Hash":      true,
	"/etcdserverpb.Maintenance/HashKV":    true,
	"/etcdserverpb.Auth/AuthStatus":       true,
	"/etcdserverpb.Auth/UserGet":          true,
	"/etcdserverpb.Auth/UserList":         true,
	"/etcdserverpb.Auth/RoleGet":          true,
	"/etcdserverpb.Auth/RoleList":         true,
	"/stoa.v1.Partitions/List":            true,
	"/stoa.v1.Quotas/List":                true,
	"/stoa.v1.Extensions/Logs":            true,
	"/stoa.v1.Extensions/Profile":         true,
	"/v3electionpb.Election/Leader":       true,
	"/v3electionpb.Election/Observe":      true,
	methodOfSessions:                      true, // their requests are recorded one by one
}

const methodOfSessions = "/stoa.v1.Sessions/Open"

// auditor adds the requests of clients to the audit log. A nil one does nothing.
type auditor struct {
	log  *audit.Log
	user func(ctx context.Context) string
}

func newAuditor(log *audit.Log, user func(ctx context.Context) string) *auditor {
	if log == nil {
		return nil
	}
	return &auditor{log, user}
}

// audited is a call that may have to be recorded. The zero value is none.
type audited struct {
	a    *auditor
	user string
	// always: whether or not it is refused.
	always bool
	called *atomic.Bool // an extension has handled it: it may have written
}

// begin looks for the user before the call: it may delete its own user. The call is to be carried out with the
// context that is returned.
func (a *auditor) begin(ctx context.Context, c *call) (context.Context, audited) {
	if a == nil {
		return ctx, audited{}
	}
	x := audited{a: a, always: !reads[c.name]}
	if x.always {
		x.user = a.user(ctx)
	}
	ctx, x.called = a.calls(ctx)
	return ctx, x
}

type calledKey struct{}

// calls returns a context by which it is noted that an extension has handled the request.
func (a *auditor) calls(ctx context.Context) (context.Context, *atomic.Bool) {
	called := new(atomic.Bool)
	if a == nil {
		return ctx, called
	}
	return context.WithValue(ctx, calledKey{}, called), called
}

// Called notes that an extension has handled a request that is otherwise a read.
func Called(ctx context.Context) {
	if called, ok := ctx.Value(calledKey{}).(*atomic.Bool); ok {
		called.Store(true)
	}
}

// undone decodes the request of a call that is not carried out. Handlers leave it to an
// interceptor, if there is one, to carry a request out; that of Range, a read, doesn't.
func (x audited) undone(next unaryHandler, srv any, ctx context.Context, dec func(any) error) (req any) {
	if !x.always {
		return nil
	}
	_, _ = next(srv, ctx, dec, func(_ context.Context, r any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		req = r
		return nil, nil
	})
	return req
}

// end records the call, if it is one to be recorded.
func (x audited) end(ctx context.Context, c *call, req, resp any, err error) {
	if x.a == nil {
		return
	}
	code, called := codeOf(err), x.called.Load()
	if !x.always && !called && !refused(code) {
		return
	}
	if x.user == "" { // perhaps this server knows the token by now
		x.user = x.a.user(ctx)
	}
	if t, ok := req.(*pb.TxnRequest); ok && audit.ReadOnly(t) && !called && !refused(code) {
		return
	}
	if m, ok := req.(*pb.AlarmRequest); ok && m.GetAction() == pb.AlarmRequest_GET && !refused(code) {
		return
	}
	r := recordOf(ctx, c.name, x.user, code)
	r.Describe(req)
	if err == nil {
		r.Outcome(resp)
		switch h := resp.(type) {
		case *kvwire.RangeResponse:
			r.Revision = h.Header.GetRevision()
		case interface{ GetHeader() *pb.ResponseHeader }:
			r.Revision = h.GetHeader().GetRevision()
		}
	}
	x.a.log.Add(r)
}

func recordOf(ctx context.Context, method, user string, code codes.Code) *audit.Record {
	return &audit.Record{Time: time.Now(), User: user, Client: clientAddr(ctx), Method: method, Code: code.String()}
}

// clientAddr is the address of a client. The gateway's connection is in memory, and its
// clients' addresses are in a header, to whose end it adds what it sees.
func clientAddr(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if p.Addr.Network() == networkInMemory {
		if v := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"); len(v) > 0 {
			return strings.TrimSpace(v[len(v)-1][strings.LastIndexByte(v[len(v)-1], ',')+1:])
		}
	}
	return p.Addr.String()
}

// networkInMemory is that of [net.Pipe].
const networkInMemory = "pipe"

// codeOf is the code that the client gets.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if code := status.Code(err); code != codes.Unknown {
		return code
	}
	return status.FromContextError(err).Code()
}

// refused tells a request that was refused from one that was carried out, or given up.
func refused(code codes.Code) bool {
	switch code {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return false
	}
	return true
}

// remembering keeps the last request of a stream, by which its refusal is described.
type remembering struct {
	grpc.ServerStream
	ctx  context.Context
	last atomic.Pointer[any]
}

func (s *remembering) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.last.Store(&m)
	}
	return err
}

func (s *remembering) Context() context.Context { return s.ctx }

func (s *remembering) request() any {
	if last := s.last.Load(); last != nil {
		return *last
	}
	return nil
}

// watch records that a watch was refused, or ended for lack of permission, or that an extension has opened it.
func (a *auditor) watch(ctx context.Context, key, end []byte, err error) {
	if a == nil {
		return
	}
	r := recordOf(ctx, "/etcdserverpb.Watch/Watch", a.user(ctx), codeOf(toStatus(err)))
	r.Describe(&pb.WatchCreateRequest{Key: key, RangeEnd: end})
	a.log.Add(r)
}

// ofSession is the auditor of one session, whose user stays the same.
type ofSession struct {
	*auditor
	ctx  context.Context
	user string
	id   int64
}

func (a *auditor) session(ctx context.Context) *ofSession {
	if a == nil {
		return nil
	}
	return &ofSession{auditor: a, ctx: ctx}
}

// opened names the session, and its user: by now this server knows the token.
func (s *ofSession) opened(id int64) {
	if s != nil {
		s.id, s.user = id, s.auditor.user(s.ctx)
	}
}

// replied records a request of the session with its answer.
func (s *ofSession) replied(op *session.Op) {
	if s == nil {
		return
	}
	code := codeOf(toStatus(op.Err))
	r := op.Request.(*session.Request)
	if w, ok := r.Response.(*pb.WatchResponse); ok && op.Err == nil {
		code = codeOfWatch(w)
	}
	if !refused(code) && !op.Logged && !writes(r) {
		return
	}
	line := recordOf(s.ctx, methodOfSessions+"/"+r.Kind.String(), s.user, code)
	line.Session = strconv.FormatInt(s.id, 16)
	line.Describe(requestIn(r))
	if op.Err == nil {
		line.Revision = op.Revision
	}
	s.log.Add(line)
}

// event records that a watch of the session has ended for lack of permission.
func (s *ofSession) event(w *pb.WatchResponse) {
	if s == nil || !refused(codeOfWatch(w)) {
		return
	}
	line := recordOf(s.ctx, methodOfSessions+"/"+stoapb.Kind_WATCH.String(), s.user, codeOfWatch(w))
	line.Session = strconv.FormatInt(s.id, 16)
	s.log.Add(line)
}

// codeOfWatch is PermissionDenied for a watch that was refused, or cancelled, for that reason.
func codeOfWatch(w *pb.WatchResponse) codes.Code {
	if w.GetCanceled() && w.GetCancelReason() == fault.PermissionDenied.Error() {
		return codes.PermissionDenied
	}
	return codes.OK
}

func writes(r *session.Request) bool {
	switch r.Kind {
	case stoapb.Kind_PUT, stoapb.Kind_DELETE_RANGE, stoapb.Kind_CLOSE: // the session's keys are deleted with it
		return true
	case stoapb.Kind_TXN:
		m, ok := requestIn(r).(*pb.TxnRequest)
		return ok && !audit.ReadOnly(m)
	}
	return false
}

// requestIn decodes what the session's fast paths leave encoded.
func requestIn(r *session.Request) any {
	if r.Message != nil {
		return r.Message
	}
	switch r.Kind {
	case stoapb.Kind_PUT:
		return &pb.PutRequest{Key: r.Key}
	case stoapb.Kind_RANGE:
		return &pb.RangeRequest{Key: r.Key}
	case stoapb.Kind_DELETE_RANGE:
		return decoded(r.Body, new(pb.DeleteRangeRequest))
	case stoapb.Kind_TXN:
		return decoded(r.Body, new(pb.TxnRequest))
	case stoapb.Kind_WATCH:
		return decoded(r.Body, new(pb.WatchCreateRequest))
	}
	return nil
}

func decoded(body []byte, m proto.Message) any {
	if proto.Unmarshal(body, m) != nil {
		return nil
	}
	return m
}
