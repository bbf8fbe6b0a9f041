package main

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// sessionServer answers as stoa would, through generated code; what it does wrong is
// set by a test.
type sessionServer struct {
	stoapb.UnimplementedSessionsServer
	value    int
	skip     uint64 // this request is not answered
	refuse   uint64 // this one is refused
	closed   chan uint64
	answered chan uint64
}

func (s *sessionServer) Open(stream stoapb.Sessions_OpenServer) error {
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := stream.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 7, Ttl: in.Open.Ttl}}); err != nil {
		return err
	}
	for next := uint64(1); ; {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.answered <- in.Answered
		out := &stoapb.ServerBatch{}
		for _, r := range in.Requests {
			if r.Seq != next {
				return errNumber
			}
			next++
			if r.Kind == stoapb.Kind_CLOSE {
				s.closed <- r.Seq
				return stream.Send(&stoapb.ServerBatch{Replies: []*stoapb.Reply{{Seq: r.Seq}}})
			}
			reply := &stoapb.Reply{Seq: r.Seq, Body: make([]byte, s.value), Revision: int64(r.Seq)}
			if r.Seq == s.skip {
				continue
			}
			if r.Seq == s.refuse {
				reply.Code, reply.Message = 3, "refused"
			}
			out.Replies = append(out.Replies, reply, &stoapb.Reply{Seq: 1, Event: true})
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

var errNumber = status.Error(codes.InvalidArgument, "a wrong number")

func serve(t *testing.T, srv *grpc.Server) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	return l.Addr().String()
}

func serveSessions(t *testing.T, impl *sessionServer) string {
	impl.closed, impl.answered = make(chan uint64, 100), make(chan uint64, 1<<20)
	// Windows that are as small as they get: the client has to wait for them.
	srv := grpc.NewServer(grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(64<<10))
	stoapb.RegisterSessionsServer(srv, impl)
	return serve(t, srv)
}

func startOn(t *testing.T, address string, conns, sessions, depth int, pace float64, atLeast int) *running {
	request := stoaRequest(stoapb.Kind_PUT, stoapb.Level_CAUSAL, make([]byte, 500))
	pipes, err := openPipes(conns, func(int) (pipe, error) {
		return openSessions(sessionOpening{address: address, sessions: sessions, source: func(int) []byte { return request }, atLeast: atLeast})
	})
	require.NoError(t, err)
	return startPipes(pipes, depth, pace)
}

// The hand-written sessions against generated code: messages beyond the windows, many
// sessions on a connection, the numbers as they must be.
func TestSessionsOnARealServer(t *testing.T) {
	impl := &sessionServer{value: 300}
	at := serveSessions(t, impl)
	for _, depth := range []int{1, 16, 700} {
		r := startOn(t, at, 2, 3, depth, 0, 300)
		require.Eventually(t, func() bool {
			r.record()
			time.Sleep(100 * time.Millisecond)
			return r.recorded().count > 100
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, r.stop())
		for range 6 {
			require.Greater(t, <-impl.closed, uint64(10))
		}
	}
	var last uint64
	for range len(impl.answered) {
		last = max(last, <-impl.answered)
	}
	require.Positive(t, last, "the server learns which replies have come")
}

func TestSessionsNoticeWrongAnswers(t *testing.T) {
	require.ErrorContains(t, startOn(t, serveSessions(t, &sessionServer{skip: 50}), 1, 1, 4, 0, 0).wait(), "was answered behind 49")
	require.ErrorContains(t, startOn(t, serveSessions(t, &sessionServer{refuse: 50}), 1, 1, 4, 0, 0).wait(), "code 3: refused")
	require.ErrorContains(t, startOn(t, serveSessions(t, &sessionServer{value: 200}), 1, 1, 4, 0, 300).wait(), "where the value alone has 300")
	_, err := openPipes(1, func(int) (pipe, error) {
		return openSessions(sessionOpening{sessions: 1, address: serve(t, grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return errNumber
		})))})
	})
	require.ErrorContains(t, err, "a wrong number")
}

func TestPace(t *testing.T) {
	r := startOn(t, serveSessions(t, &sessionServer{}), 2, 5, 10, 2000, 0)
	time.Sleep(100 * time.Millisecond)
	r.record()
	began := time.Now()
	time.Sleep(time.Second)
	h, took := r.recorded(), time.Since(began)
	require.NoError(t, r.stop())
	require.InEpsilon(t, 2000, float64(h.count)/took.Seconds(), 0.2)
}

func TestEmptyServer(t *testing.T) {
	at := serve(t, newEmptyServer())
	pipes, err := openPipes(1, func(int) (pipe, error) {
		return openSessions(sessionOpening{address: at, sessions: 2, echo: true, replies: 100, atLeast: 100,
			source: func(int) []byte { return stoaRequest(stoapb.Kind_RANGE, 0, []byte("x")) }})
	})
	require.NoError(t, err)
	r := startPipes(pipes, 64, 0)
	r.record()
	time.Sleep(100 * time.Millisecond)
	h := r.recorded()
	require.NoError(t, r.stop())
	require.Greater(t, h.count, int64(1000))
}

// What is prepared by hand is what generated code reads.
func TestRequestsByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := stoapb.Kind(rapid.Int32Range(1, 9).Draw(t, "kind"))
		level := stoapb.Level(rapid.Int32Range(0, 2).Draw(t, "level"))
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		s := &session{seq: rapid.Uint64Range(0, 1<<40).Draw(t, "seq"), seen: rapid.Uint64Range(0, 1<<40).Draw(t, "seen")}
		p := &sessionPipe{}
		b := s.number(p.begin(s), stoaRequest(kind, level, body))
		var got stoapb.ClientBatch
		require.NoError(t, proto.Unmarshal(seal(b)[prefix:], &got))
		want := &stoapb.ClientBatch{Answered: s.seen, Requests: []*stoapb.Request{{Seq: s.seq, Kind: kind, Level: level, Body: body}}}
		require.True(t, proto.Equal(want, &got), "%v, want %v", &got, want)
	})
}

func TestRuns(t *testing.T) {
	lists := [][]int{{0, 1}, {2, 3}, {4}}
	at := func(key int) int { return key / 2 }
	for _, run := range []int{1, 3} {
		next := inRuns(lists, run, 1)
		for i := range 30 {
			require.Equal(t, (1+i/run)%3, at(next()))
		}
	}
	next := inRuns(lists, 0, 2)
	for range 10 {
		require.Equal(t, 4, next())
	}
}
