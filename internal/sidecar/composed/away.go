package composed

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// lookPause is the time between two looks at a cluster that answers, and awayPause at one that doesn't; askTimeout is that of an answer.
	lookPause  = 30 * time.Second
	awayPause  = 5 * time.Second
	askTimeout = 5 * time.Second
)

// follow logs that a cluster doesn't answer, with the reason, and that it does again: a composition with a wrong endpoint serves no key of that
// cluster, and its clients may be asleep, or wait.
func follow(ctx context.Context, lg *zap.Logger, ask func(context.Context) error) {
	for away := false; ; {
		err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			lg.Warn("a cluster of the composition doesn't answer", zap.Error(err))
		case err == nil && away:
			lg.Info("a cluster of the composition answers again")
		}
		pause := lookPause
		if away = err != nil; away {
			pause = awayPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// followAll does so for each cluster, until ctx ends.
func (s *services) followAll(ctx context.Context, lg *zap.Logger, under *sync.WaitGroup) {
	for name, by := range s.probes {
		under.Go(func() {
			follow(ctx, lg.With(zap.String("cluster", name)), func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, askTimeout)
				defer cancel()
				if err := by.Sync(ctx, name); !isRefusal(err) {
					return err
				}
				return nil // that the user may not is an answer, too
			})
		})
	}
}
