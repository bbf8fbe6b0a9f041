package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/memory"
)

// limitMemory bounds the memory of this process. GOMEMLIMIT in the environment is left in force,
// and is the limit if no flag says otherwise.
func limitMemory(cfg *config.Config, lg *zap.Logger) *memory.Budget {
	ofCollector := debug.SetMemoryLimit(-1)
	given := os.Getenv("GOMEMLIMIT") != "" && ofCollector < math.MaxInt64
	limit := cfg.MemoryLimit
	switch {
	case limit < 0:
		return nil
	case limit == 0 && given:
		limit = ofCollector
	case limit == 0:
		limit = memory.Default(os.DirFS("/"))
	}
	if limit == 0 {
		lg.Warn("the memory of this machine is unknown: --memory-limit bounds that of requests")
		return nil
	}
	limit = max(limit, config.MinMemoryLimit)
	if !given {
		debug.SetMemoryLimit(limit)
	}
	lg.Info("memory is limited", zap.Int64("memory-limit", limit))
	if q := cfg.QuotaBackendBytes; q == 0 || q > limit/2 {
		lg.Warn("keys up to the quota may take more than half of the memory limit: all of them are in memory",
			zap.Int64("quota-backend-bytes", q), zap.Int64("memory-limit", limit))
	}
	return memory.NewBudget(limit)
}

// leastShed is how much a connection must have brought to be closed when memory runs out, in
// bytes.
const leastShed = 1 << 20

// weigh keeps the budget in step with what is alive, and closes connections when nothing else
// helps, one after each collection.
func (s *server) weigh(ctx context.Context) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	next := time.NewTimer(0)
	defer next.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		metrics.Read(live)
		now := int64(live[0].Value.Uint64())
		s.memory.Weigh(now, s.node.Watchers())
		next.Reset(s.memory.Pause())
		switch exhausted := s.memory.Exhausted(now); {
		case !exhausted || now == before:
		case !s.memory.Exhausted(before):
			s.ports.clients.Shed(math.MaxInt64) // what was sent before isn't what matters
		default:
			if client := s.ports.clients.Shed(leastShed); client != nil {
				s.lg.Warn("memory runs out: closed the connection that has sent the most", zap.Stringer("client", client),
					zap.Int64("alive", now), zap.Int64("memory-limit", s.memory.Limit()))
			}
		}
		before = now
	}
}
