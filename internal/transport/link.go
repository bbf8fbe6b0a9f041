package transport

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// Each side of a link sends something at least this many times per
// Options.Silence, so that a single late message doesn't break it.
const pulsesPerSilence = 5

func (t *Transport) pulse() time.Duration { return t.o.Silence / pulsesPerSilence }

// link is an accepted link to a peer.
type link struct {
	p      *peer
	stream grpc.BidiStreamingClient[peerpb.Batch, peerpb.Pulse]
	cut    context.CancelCauseFunc
	heard  atomic.Int64 // when the last pulse came, by uptime
}

// send writes the queue's batches until the link ends.
func (l *link) send(ctx context.Context) {
	pulse := time.NewTicker(l.p.t.pulse())
	defer pulse.Stop()
	q := l.p.queue
	for ctx.Err() == nil {
		// First, so that a busy link is pinged too.
		select {
		case <-pulse.C:
			if !l.write(&peerpb.Batch{Ping: uint64(uptime())}, 0) {
				return
			}
		default:
		}
		b, bytes, overflow := q.take()
		if overflow {
			l.p.t.o.Handler.Unreachable(l.p.id)
		}
		if b != nil {
			if !l.write(b, bytes) {
				return
			}
			continue
		}
		select {
		case <-q.wake:
		case <-pulse.C:
			if !l.write(&peerpb.Batch{Ping: uint64(uptime())}, 0) {
				return
			}
		case <-ctx.Done():
		}
	}
}

func (l *link) write(b *peerpb.Batch, bytes int) bool {
	// When it fails, listen gets the reason.
	if err := l.stream.Send(b); err != nil {
		return false
	}
	l.p.metrics.sentBytes.Add(float64(bytes))
	return true
}

// listen reads the pulses and detects the end of the stream.
func (l *link) listen() {
	for {
		pulse, err := l.stream.Recv()
		if err == io.EOF {
			err = fmt.Errorf("the peer has ended it")
		}
		if err != nil {
			l.cut(err)
			return
		}
		now := uptime()
		l.heard.Store(now)
		if sent := int64(pulse.Pong); sent != 0 {
			l.p.metrics.roundTrip.Observe(time.Duration(now - sent).Seconds())
		}
	}
}

// watch ends a silent link. A write that blocks on a dead connection returns
// then.
func (l *link) watch(ctx context.Context) {
	tick := time.NewTicker(l.p.t.pulse())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if uptime()-l.heard.Load() > int64(l.p.t.o.Silence) {
				l.cut(errSilent)
				return
			}
		}
	}
}
