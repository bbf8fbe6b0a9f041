package sidecar

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A request that comes while nothing is under way in its lane needs no company, and each change of goroutines on
// its way would be a good part of the time that it takes. So its caller carries it out: those that come
// meanwhile gather for the next batch.

// alone carries out the request that is under way.
func (l *lane) alone(ctx context.Context, s carrier, r shared, limit time.Duration) ([]byte, error) {
	l.m.batches.Inc()
	l.m.batched.Inc()
	if r.write {
		return l.writeAlone(ctx, s, r)
	}
	defer l.over()
	return readAlone(ctx, s, r, limit)
}

// readAlone calls the member that has the session: a call has fewer goroutines on its way than a session. It may
// be carried out again, unlike a write, which needs the session for that.
func readAlone(ctx context.Context, s carrier, r shared, limit time.Duration) ([]byte, error) {
	// Not a deadline: that would be told to the member, and calls whose headers are alike are cheaper.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	answer, err := s.call(limited, r)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil, status.Code(err) == codes.Unavailable:
		return nil, errNotTaken
	}
	return nil, err
}

// writeAlone sends a batch of one.
func (l *lane) writeAlone(ctx context.Context, s carrier, r shared) ([]byte, error) {
	answers, err := s.send([]*request{{shared: r}})
	if err != nil {
		l.over()
		return nil, errNotTaken
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	answer, err := answers[0].Wait(ctx)
	if err != nil && ctx.Err() != nil {
		// It is under way still. (The session's end is an answer, too.)
		go func() {
			defer l.over()
			_, _ = answers[0].Wait(context.Background())
		}()
		return nil, context.Cause(ctx)
	}
	l.over()
	if lost(s, err) {
		err = errLost
	}
	return answer, err
}
