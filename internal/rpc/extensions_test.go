package rpc

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/calllog"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/profile"
)

// fakeExtensions has one extension, "e".
type fakeExtensions struct {
	log      *calllog.Log
	forbids  atomic.Bool
	profiles profile.Set
}

func (f *fakeExtensions) known(name string) error {
	if name != "e" {
		return fault.NoExtension.With(fmt.Sprintf("stoa: there is no extension %q", name))
	}
	return nil
}

func (f *fakeExtensions) ExtensionLog(_ context.Context, name string) (*calllog.Reader, error) {
	if err := f.known(name); err != nil {
		return nil, err
	}
	return &calllog.Reader{Cursor: f.log.Open(name), Show: f.show}, nil
}

func (f *fakeExtensions) show(*calllog.Batch) error {
	if f.forbids.Load() {
		return fault.PermissionDenied
	}
	return nil
}

func (f *fakeExtensions) ProfileExtension(_ context.Context, name string) (*profile.Profile, error) {
	if err := f.known(name); err != nil {
		return nil, err
	}
	return f.profiles.Begin(name)
}

// extensions serves the fake, and returns the server to stop.
func extensions(t *testing.T) (*fakeExtensions, *Server, stoapb.ExtensionsClient) {
	f := &fakeExtensions{log: calllog.New(calllog.Bounds{Lines: 4, Bytes: 1 << 20, Total: 1 << 20})}
	s := NewServer(newFakeNode(), Options{})
	s.ServeExtensions(f)
	l := bufconn.Listen(1 << 20)
	go func() { _ = Front(s).Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///bufnet", grpc.WithTransportCredentials(insecure.NewCredentials()), dial(l))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		s.Close()
	})
	return f, s, stoapb.NewExtensionsClient(conn)
}

func TestLogs(t *testing.T) {
	f, _, c := extensions(t)
	at := time.Unix(1, 5)
	f.log.Add("e", calllog.Call{Time: at, Rev: 7, Handler: "put", Key: "/k\n", Lines: []string{"a \x1b[31mred\xff", "b"}})
	f.log.Add("e", calllog.Call{Time: at, Rev: 8, Handler: "put", Key: "/k", Err: fmt.Errorf("apply: %w", fault.NoSpace)})
	f.log.Add("e", calllog.Call{Time: at, Rev: 9, Err: fault.TooMuchWork.With("too much"), Undone: true})
	stream, err := c.Logs(testContext(t), &stoapb.ExtensionLogsRequest{Name: "e"})
	require.NoError(t, err)
	r, err := stream.Recv()
	require.NoError(t, err)
	require.EqualValues(t, fakeMember, r.MemberId)
	require.Equal(t, []string{
		`time:1000000005 revision:7 handler:"put" key:"/k\\n" lines:"a \\x1b[31mred\\xff" lines:"b"`,
		`time:1000000005 revision:8 handler:"put" key:"/k" error:"etcdserver: mvcc: database space exceeded"`,
		`time:1000000005 revision:9 error:"too much" undone:true`,
	}, callTexts(r))
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func callTexts(r *stoapb.ExtensionLogsResponse) (all []string) {
	for _, c := range r.Calls {
		all = append(all, plainText(c))
	}
	return all
}

// plainText is the text of a call; that of protobuf varies at random.
func plainText(c *stoapb.ExtensionCall) string {
	text := fmt.Sprintf("time:%d revision:%d", c.Time, c.Revision)
	if c.Handler != "" {
		text += fmt.Sprintf(" handler:%q", c.Handler)
	}
	if c.Key != "" {
		text += fmt.Sprintf(" key:%q", c.Key)
	}
	for _, l := range c.Lines {
		text += fmt.Sprintf(" lines:%q", l)
	}
	if c.Error != "" {
		text += fmt.Sprintf(" error:%q", c.Error)
	}
	if c.Undone {
		text += " undone:true"
	}
	return text
}

func TestLogsAreFollowed(t *testing.T) {
	f, server, c := extensions(t)
	stream, err := c.Logs(testContext(t), &stoapb.ExtensionLogsRequest{Name: "e", Follow: true})
	require.NoError(t, err)
	r, err := stream.Recv()
	require.NoError(t, err)
	require.Empty(t, r.Calls, "the first response comes at once")
	for i := range 10 {
		f.log.Add("e", calllog.Call{Lines: []string{fmt.Sprint(i)}})
	}
	seen, missed := 0, 0
	for seen+missed < 10 {
		r, err := stream.Recv()
		require.NoError(t, err)
		seen += len(r.Calls)
		missed += int(r.Missed)
	}
	f.log.Forget("e")
	_, err = stream.Recv()
	require.Equal(t, codes.NotFound, status.Code(err))
	require.ErrorContains(t, err, "was removed")

	stream, err = c.Logs(testContext(t), &stoapb.ExtensionLogsRequest{Name: "e", Follow: true})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	server.SetServing(false)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "a server that stops doesn't wait for readers: %v", err)
}

// Whether a client may see the calls is asked whenever there are any.
func TestLogsAreFollowedAsLongAsPermitted(t *testing.T) {
	f, _, c := extensions(t)
	stream, err := c.Logs(testContext(t), &stoapb.ExtensionLogsRequest{Name: "e", Follow: true})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	f.forbids.Store(true)
	f.log.Add("e", calllog.Call{Lines: []string{"a secret"}})
	_, err = stream.Recv()
	require.Equal(t, codes.PermissionDenied, status.Code(err))
}

func TestUnknownExtensions(t *testing.T) {
	_, _, c := extensions(t)
	logs, err := c.Logs(testContext(t), &stoapb.ExtensionLogsRequest{Name: "f"})
	require.NoError(t, err)
	_, err = logs.Recv()
	require.Equal(t, codes.NotFound, status.Code(err))
	require.ErrorContains(t, err, `stoa: there is no extension "f"`)
	profile, err := c.Profile(testContext(t), &stoapb.ExtensionProfileRequest{Name: "f"})
	require.NoError(t, err)
	_, err = profile.Recv()
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestProfile(t *testing.T) {
	f, server, c := extensions(t)
	ask := func(ctx context.Context, d time.Duration) (*stoapb.ExtensionProfileResponse, error) {
		stream, err := c.Profile(ctx, &stoapb.ExtensionProfileRequest{Name: "e", Duration: int64(d)})
		require.NoError(t, err)
		return stream.Recv()
	}
	running := func() bool { return f.profiles.Of("e") != nil }
	r, err := ask(testContext(t), time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, r.Ended)
	require.GreaterOrEqual(t, r.Duration, int64(time.Millisecond))
	require.False(t, running())
	for _, d := range []time.Duration{-1, 6 * time.Minute} {
		_, err = ask(testContext(t), d)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}

	// It ends with its stream: another one can begin.
	ctx, cancel := context.WithCancel(testContext(t))
	cut := make(chan error, 1)
	go func() { _, err := ask(ctx, time.Minute); cut <- err }()
	require.Eventually(t, running, time.Minute, time.Millisecond)
	_, err = ask(testContext(t), 0)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	cancel()
	require.Error(t, <-cut)
	require.Eventually(t, func() bool { return !running() }, time.Minute, time.Millisecond)

	for _, end := range []func(){func() { f.profiles.End("e") }, func() { server.SetServing(false) }} {
		answers := make(chan *stoapb.ExtensionProfileResponse, 1)
		go func() { r, _ := ask(testContext(t), time.Minute); answers <- r }()
		require.Eventually(t, running, time.Minute, time.Millisecond)
		end()
		require.NotEmpty(t, (<-answers).GetEnded())
	}
}
