package compose

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// askAgain is how often a cluster is asked how far it is while others wait for it.
const askAgain = 20 * time.Millisecond

// ask asks a cluster of a feed how far its watches are: whenever others wait for it,
// and, so that its silence is noticed, now and then. It ends the part that keeps
// silent.
func (p *part) ask() {
	defer func() { _ = p.by.Close() }()
	timeout := p.f.c.core.cfg.Timeout
	rest := timeout / 3
	for {
		wait := time.NewTimer(rest)
		select {
		case <-p.stop:
			return
		case <-p.f.ctx.Done():
			return
		case <-p.f.c.core.ctx.Done():
			p.f.Close()
			return
		case <-p.nudge:
		case <-wait.C:
		}
		wait.Stop()
		p.f.mu.Lock()
		left := timeout - time.Since(p.heard)
		needed := slices.Contains(p.f.merger.lacking(), p.of.at)
		p.f.mu.Unlock()
		if left <= 0 {
			p.fail()
			return
		}
		if rest = min(timeout/3, left); needed {
			rest = min(askAgain, left)
		}
		if needed || left <= timeout*2/3 {
			ctx, cancel := context.WithTimeout(p.f.ctx, min(timeout/3, left))
			_ = p.by.RequestProgress(watchContext(ctx))
			cancel()
		}
	}
}

// hurry makes ask ask.
func (p *part) hurry() {
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// fail ends the watches of a cluster that keeps silent.
func (p *part) fail() {
	p.f.c.core.cfg.Logger.Warn("the watches of a cluster have ended", zap.String("cluster", p.of.name))
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	for w := range p.watches {
		w.endWith(p.of.named(ErrSilent, false))
	}
	p.f.give()
}
