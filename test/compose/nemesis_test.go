package compose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// nemesis injects faults into one cluster: members lag, because they are
// stopped for a while, and fail. A majority of the voters is there most of the
// time.
type nemesis struct {
	*cluster
	rnd *rand.Rand
	say func(format string, args ...any)
}

// run does so until ctx ends, and leaves all servers at work.
func (n *nemesis) run(ctx context.Context, t *testing.T) error {
	for {
		if !sleep(ctx, n.between(50, 400)) {
			return nil
		}
		var err error
		s := n.Servers[n.rnd.IntN(len(n.Servers))]
		switch c := n.rnd.IntN(100); {
		case c < 70: // lags
			err = n.stopFor(ctx, s, n.between(20, 400))
		case c < 80: // stopped for longer than elections take; maybe the leader
			n.say("%s of %s is stopped for seconds", s.Name, n.Spec.Dir)
			err = n.stopFor(ctx, s, n.between(1500, 3000))
		case c < 90:
			n.say("%s of %s is killed", s.Name, n.Spec.Dir)
			err = n.kill(ctx, s)
		default:
			if lead := n.leader(t); lead != nil {
				n.say("%s of %s, the leader, is killed", lead.Name, n.Spec.Dir)
				err = n.kill(ctx, lead)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (n *nemesis) between(low, high int) time.Duration {
	return time.Duration(low+n.rnd.IntN(high-low)) * time.Millisecond
}

func (n *nemesis) stopFor(ctx context.Context, s *process.Server, d time.Duration) error {
	if err := s.Pause(); err != nil {
		return err
	}
	sleep(ctx, d)
	return s.Resume()
}

func (n *nemesis) kill(ctx context.Context, s *process.Server) error {
	if err := s.Kill(); err != nil {
		return err
	}
	sleep(ctx, n.between(100, 1500))
	if err := n.Restart(context.WithoutCancel(ctx), s); err != nil {
		return fmt.Errorf("after kill -9: %w", err)
	}
	return nil
}

// sleep says whether it slept so long.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
