package node

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"
)

// lines takes log lines over from goroutines that must not wait for a log file: apply
// holds the stores' locks, and a group steps Raft. One goroutine writes them, in order.
// Lines that don't fit in are dropped and counted.
type lines struct {
	waiting chan line
	dropped atomic.Int64
}

// line writes to the log. It runs later, and may take its time.
type line func(*zap.Logger)

const maxLines = 1024

func newLines() *lines { return &lines{waiting: make(chan line, maxLines)} }

// add never blocks.
func (l *lines) add(write line) {
	select {
	case l.waiting <- write:
	default:
		l.dropped.Add(1)
	}
}

// run writes lines until life ends. Those that come later are for drain.
func (l *lines) run(life context.Context, lg *zap.Logger) {
	for {
		select {
		case write := <-l.waiting:
			l.write(write, lg)
		case <-life.Done():
			return
		}
	}
}

// drain writes the lines that are there, once nothing adds any more.
func (l *lines) drain(lg *zap.Logger) {
	for {
		select {
		case write := <-l.waiting:
			l.write(write, lg)
		default:
			return
		}
	}
}

func (l *lines) write(write line, lg *zap.Logger) {
	write(lg)
	if n := l.dropped.Swap(0); n > 0 {
		lg.Warn("dropped log messages; the log is slower than the events", zap.Int64("dropped-messages", n))
	}
}
