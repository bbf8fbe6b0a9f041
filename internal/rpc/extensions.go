package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/calllog"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/profile"
)

// Extensions shows the calls of extensions on this server. It refuses clients that may not
// see those of an extension.
type Extensions interface {
	// ExtensionLog opens the log of an extension's calls.
	ExtensionLog(ctx context.Context, name string) (*calllog.Reader, error)
	// ProfileExtension begins to count the steps of an extension's calls by line.
	ProfileExtension(ctx context.Context, name string) (*profile.Profile, error)
}

// ServeExtensions adds stoa's own service. It must be called before Serve.
func (s *Server) ServeExtensions(x Extensions) {
	s.register(stoapb.Extensions_ServiceDesc, &extensionsServer{info: s.node, extensions: x, drain: s.drain})
}

type extensionsServer struct {
	stoapb.UnimplementedExtensionsServer
	info       Info
	extensions Extensions
	drain      <-chan struct{} // closed when the server stops taking requests
}

// followPause is the least time between two responses with new calls: a log that is
// written quickly is read in few large pieces, since reading takes the lock that apply
// needs to write.
const followPause = 100 * time.Millisecond

// Logs sends the calls that are there, and those to come if the client follows.
func (s *extensionsServer) Logs(r *stoapb.ExtensionLogsRequest, stream stoapb.Extensions_LogsServer) error {
	log, err := s.extensions.ExtensionLog(stream.Context(), r.GetName())
	if err != nil {
		return toStatus(err)
	}
	defer log.Close()
	for first := true; ; first = false {
		b, err := log.Read()
		if err != nil {
			return toStatus(err)
		}
		if first || b.Missed > 0 || len(b.Calls) > 0 {
			if err := stream.Send(logsOf(s.info.MemberID(), &b)); err != nil {
				return err
			}
		}
		switch {
		case b.Gone:
			return toStatus(fault.NoExtension.With(fmt.Sprintf("stoa: extension %q was removed", r.GetName())))
		case !r.GetFollow():
			return nil
		}
		if err := await(stream.Context(), s.drain, b.Changed); err != nil {
			return err
		}
		if err := await(stream.Context(), s.drain, time.After(followPause)); err != nil {
			return err
		}
	}
}

// await waits for an event, or for the end of the stream or of the server.
func await[T any](ctx context.Context, drain <-chan struct{}, event <-chan T) error {
	select {
	case <-event:
		return nil
	case <-drain:
		return toStatus(fault.Stopped)
	case <-ctx.Done():
		return toStatus(ctx.Err())
	}
}

// logsOf escapes the texts, which come from clients and are for terminals.
func logsOf(member uint64, b *calllog.Batch) *stoapb.ExtensionLogsResponse {
	resp := &stoapb.ExtensionLogsResponse{MemberId: member, Missed: b.Missed}
	for _, c := range b.Calls {
		call := &stoapb.ExtensionCall{
			Time: c.Time.UnixNano(), Revision: c.Rev, Handler: c.Handler, Key: fault.Readable(c.Key), Undone: c.Undone,
		}
		for _, line := range c.Lines {
			call.Lines = append(call.Lines, fault.Readable(line))
		}
		if c.Err != nil {
			call.Error = fault.Readable(status.Convert(toStatus(c.Err)).Message())
		}
		resp.Calls = append(resp.Calls, call)
	}
	return resp
}

// The durations of a profile.
const (
	defaultProfile = 10 * time.Second
	maxProfile     = 5 * time.Minute
)

// Profile counts for the time that is asked for, or until the source is another. When the
// client goes, it ends.
func (s *extensionsServer) Profile(r *stoapb.ExtensionProfileRequest, stream stoapb.Extensions_ProfileServer) error {
	d := time.Duration(r.GetDuration())
	if d == 0 {
		d = defaultProfile
	}
	if d < 0 || d > maxProfile {
		return status.Errorf(codes.InvalidArgument, "stoa: the duration of a profile must be between 1ns and %v, and is %v", maxProfile, d)
	}
	p, err := s.extensions.ProfileExtension(stream.Context(), r.GetName())
	if err != nil {
		return toStatus(err)
	}
	defer p.Stop()
	began, ended := time.Now(), ""
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.Ended():
		ended = "the extension was removed, or replaced by another source"
	case <-s.drain:
		ended = "the server is stopping"
	case <-stream.Context().Done():
		return toStatus(stream.Context().Err())
	}
	p.Stop()
	calls, lines := p.Usage()
	resp := &stoapb.ExtensionProfileResponse{
		MemberId: s.info.MemberID(), Revision: p.Revision, Duration: int64(time.Since(began)), Calls: calls, Ended: ended,
	}
	for _, l := range lines {
		resp.Lines = append(resp.Lines, &stoapb.ExtensionLine{Line: int64(l.Line), Calls: l.Calls, Steps: l.Steps})
	}
	return stream.Send(resp)
}
