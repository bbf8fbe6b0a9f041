package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// incoming is a peer's part of the links that it dials.
type incoming struct {
	// Held while the handler receives a batch of this peer, so that a new link
	// waits for the old one's last batch.
	turn sync.Mutex

	linkMu sync.Mutex
	remote *remote // whose link is read; nil if none
}

// remote is the far end of an incoming call that was admitted.
type remote struct {
	peer        *peer
	who         identity
	incarnation uint64
	from        string

	heard atomic.Int64 // when something came last, by uptime
	busy  atomic.Bool  // the handler has a batch: the silence is ours
	end   context.CancelCauseFunc
}

func (r *remote) silent() bool {
	return !r.busy.Load() && uptime()-r.heard.Load() > int64(r.peer.t.o.Silence)
}

// Link serves the link of a dialling peer.
func (t *Transport) Link(stream grpc.BidiStreamingServer[peerpb.Batch, peerpb.Pulse]) error {
	r, err := t.admit(stream.Context())
	if err != nil {
		t.logRefusal(stream.Context(), err)
		return err
	}
	defer t.running.Done()
	p := r.peer
	ctx, end := context.WithCancelCause(p.life)
	defer end(nil)
	r.end = end
	r.heard.Store(uptime())
	if err := p.listenTo(r); err != nil {
		t.logRefusal(stream.Context(), err)
		return err
	}
	defer p.forget(r)
	if err := t.met(stream.Context(), r.who); err != nil {
		err = refusal(err)
		t.logRefusal(stream.Context(), err)
		return err
	}
	if err := stream.SendHeader(t.identity(p.id)); err != nil {
		return fmt.Errorf("accept the link of server %x: %w", p.id, err)
	}
	p.log.Info("link from the peer is up", zap.String("from", r.from))
	p.seen()

	pings := make(chan uint64, 1)
	received := make(chan struct{})
	go func() {
		defer close(received)
		end(p.receive(r, stream, pings))
	}()
	t.pulseBack(ctx, r, stream, pings)
	err = context.Cause(ctx)
	p.log.Warn("link from the peer has ended", zap.String("from", r.from), zap.Error(err))
	// Forgotten now, so that receive stops at the next batch; the call that the
	// handler may still be in is waited for by Close.
	p.forget(r)
	t.running.Go(func() { <-received })
	return status.Error(codes.Unavailable, err.Error())
}

// maxRefusals bounds the remembered refusals.
const maxRefusals = 1000

// logRefusal logs a refusal once: a refused server retries several times a
// second.
func (t *Transport) logRefusal(ctx context.Context, err error) {
	if status.Code(err) == codes.Unavailable {
		return
	}
	from := addressOf(ctx)
	t.refused.Lock()
	defer t.refused.Unlock()
	why := hostOf(from) + " " + err.Error()
	if t.refused.told[why] {
		return
	}
	if t.refused.told == nil || len(t.refused.told) >= maxRefusals {
		t.refused.told = map[string]bool{}
	}
	t.refused.told[why] = true
	t.o.Logger.Warn("refused a link", zap.String("remote-addr", from), zap.String("error", status.Convert(err).Message()))
}

// hostOf leaves out the port of a dialler, which is another at each attempt.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// listenTo makes r the peer's link. A newer link of the same process takes over
// from the older one; one of another process has to wait until the older one
// has ended, since there must not be two under one id.
func (p *peer) listenTo(r *remote) error {
	p.linkMu.Lock()
	defer p.linkMu.Unlock()
	if old := p.remote; old != nil {
		if old.incarnation != r.incarnation && !old.silent() {
			return status.Errorf(codes.AlreadyExists, "two servers have the id %x: one at %s is connected already, another dials from %s", p.id, old.from, hostOf(r.from))
		}
		old.end(errReplaced)
	}
	p.remote = r
	return nil
}

func (p *peer) forget(r *remote) {
	p.linkMu.Lock()
	defer p.linkMu.Unlock()
	if p.remote == r {
		p.remote = nil
	}
}

func (p *peer) listensTo(r *remote) bool {
	p.linkMu.Lock()
	defer p.linkMu.Unlock()
	return p.remote == r
}

// receive hands batches to the handler until the stream or r's turn ends.
func (p *peer) receive(r *remote, stream grpc.BidiStreamingServer[peerpb.Batch, peerpb.Pulse], pings chan<- uint64) error {
	for {
		b, err := stream.Recv()
		if err != nil {
			return err
		}
		r.heard.Store(uptime())
		if b.Ping != 0 {
			select {
			case pings <- b.Ping:
			default: // one lost only costs a measurement
			}
			continue
		}
		r.busy.Store(true)
		ok := p.deliver(r, b)
		r.heard.Store(uptime())
		r.busy.Store(false)
		if !ok {
			return errReplaced
		}
	}
}

func (p *peer) deliver(r *remote, b *peerpb.Batch) bool {
	p.turn.Lock()
	defer p.turn.Unlock()
	if !p.listensTo(r) {
		return false
	}
	p.metrics.receivedBytes.Add(float64(weight(b)))
	p.t.o.Handler.Receive(p.id, b)
	return true
}

// pulseBack sends pulses to the dialler, until the link ends or the dialler is
// silent.
func (t *Transport) pulseBack(ctx context.Context, r *remote, stream grpc.BidiStreamingServer[peerpb.Batch, peerpb.Pulse], pings <-chan uint64) {
	tick := time.NewTicker(t.pulse())
	defer tick.Stop()
	for {
		var pulse peerpb.Pulse
		select {
		case <-ctx.Done():
			return
		case pulse.Pong = <-pings:
		case <-tick.C:
			if r.silent() {
				r.end(errSilent)
				return
			}
		}
		if err := stream.Send(&pulse); err != nil {
			r.end(fmt.Errorf("send a pulse: %w", err))
			return
		}
	}
}
