package compose

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// askAgain is the interval at which a cluster is asked for progress while
// others wait for it.
const askAgain = 20 * time.Millisecond

// ask requests progress of a cluster of a feed: whenever others wait for it,
// and, to detect silence, periodically. It ends a part that doesn't answer that, nor a read.
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
		if left <= timeout/2 && !p.answers(left) {
			rest = askAgain
		}
	}
}

// answers reads a key at the member, and notes whether there is an answer in time: one that searches through much history
// for the next event tells no progress meanwhile. Another member's answer says nothing of the one with the watches, whose
// stream stays with it when the cluster's client has left it, or is at one of the voters.
func (p *part) answers(within time.Duration) bool {
	if p.of.learner.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(p.f.ctx, within)
	defer cancel()
	_, err := p.of.nearest().Get(ctx, firstKey, clientv3.WithSerializable(), clientv3.WithCountOnly())
	if isCutOff(err) || p.of.moves.Load() != p.by.begun.moves.Load() {
		return false
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.heard = time.Now()
	return true
}

// hurry triggers a request for progress.
func (p *part) hurry() {
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// fail ends the watches of a silent cluster.
func (p *part) fail() {
	p.f.c.core.cfg.Logger.Warn("the watches of a cluster have ended", zap.String("cluster", p.of.name))
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	for w := range p.watches {
		w.endWith(p.of.named(ErrSilent, false))
	}
	p.f.give()
}
