package sidecar

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

const (
	// maxCatchUps bounds the watchers that catch up at a time: each has a stream to a member and
	// a response in memory.
	maxCatchUps = 32
	// While others wait, a watcher gives way after maxTurn, and once its client has not taken a
	// response for maxIdle.
	maxTurn, maxIdle = time.Second, 50 * time.Millisecond
)

// maxSilence is how long a member may send nothing: it may be behind, or paused. Or it searches through much history for
// the next event: so it may send nothing for twice as long each time, until something comes.
var maxSilence = 5 * time.Second

// catchUp feeds a watcher from a stream of its own, turn by turn.
type catchUp struct {
	ws     *watches
	st     *relay.Stream
	w      *relay.Watcher
	by     any // the program, which has its turns among others
	number int
	hungry chan struct{} // the client has taken all, perhaps
	// silence is how long the member may send nothing now.
	silence time.Duration
}

// catchUp begins to feed a watcher. It is called with the lock.
func (l *watchStream) catchUp(w *relay.Watcher) {
	ctx, cancel := context.WithCancel(l.ctx)
	c := &catchUp{ws: l.ws, st: l.st, w: w, by: programOf(l.ctx, l), hungry: make(chan struct{}, 1), silence: l.ws.silence}
	c.number = w.CatchUp(func() {
		signal(c.hungry)
		if !w.Behind(c.number) {
			cancel()
		}
	})
	go func() {
		defer cancel()
		c.run(ctx)
	}()
}

func (c *catchUp) run(ctx context.Context) {
	for pause := minReopen; ctx.Err() == nil; {
		// A client that doesn't read needs no stream.
		if !c.wait(ctx, nil) || c.ws.turns.take(ctx, c.by) != nil {
			return
		}
		gaveWay := c.feed(ctx)
		c.ws.turns.done()
		if gaveWay {
			pause = minReopen
			continue
		}
		rest(ctx, pause)
		pause = min(2*pause, maxRewatch)
	}
}

// wait returns true once the client has taken all that was fed; false if the watcher has caught up,
// or ctx or the time has ended.
func (c *catchUp) wait(ctx context.Context, late <-chan time.Time) bool {
	for {
		c.ws.mu.Lock()
		behind, hungry := c.w.Behind(c.number), c.w.Hungry()
		c.ws.mu.Unlock()
		if !behind || hungry {
			return behind
		}
		select {
		case <-c.hungry:
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// feed carries one stream. It reports whether that has ended for others to have their turn.
func (c *catchUp) feed(ctx context.Context) (gaveWay bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	remote, err := c.open(ctx)
	if err != nil {
		c.failed(asStatus(err))
		return false
	}
	go askProgress(ctx, remote)
	silence := time.AfterFunc(c.silence, cancel)
	defer silence.Stop()
	for began := time.Now(); ; {
		r, err := receiveWatch(remote)
		if err != nil {
			if !silence.Stop() { // it was that
				c.silence *= 2
			}
			return false
		}
		c.ws.mu.Lock()
		again, whole := c.w.Feed(c.number, r), c.w.Whole()
		c.ws.mu.Unlock()
		if again {
			return false
		}
		silence.Stop()
		if whole && !r.Created {
			c.silence = c.ws.silence
		}
		if !c.waitOrGiveWay(ctx) {
			return true
		}
		if whole && r.Events() > 0 && time.Since(began) > maxTurn && c.ws.turns.wanted() {
			return true
		}
		silence.Reset(c.silence)
	}
}

// waitOrGiveWay waits until the client has taken all. It returns false if the stream is to end.
func (c *catchUp) waitOrGiveWay(ctx context.Context) bool {
	for {
		late := time.NewTimer(maxIdle)
		ready := c.wait(ctx, late.C)
		late.Stop()
		c.ws.mu.Lock()
		behind := c.w.Behind(c.number)
		c.ws.mu.Unlock()
		switch {
		case ready:
			return true
		case !behind, ctx.Err() != nil, c.ws.turns.wanted():
			return false
		}
	}
}

func (c *catchUp) open(ctx context.Context) (grpc.ClientStream, error) {
	remote, err := c.ws.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.ws.mu.Lock()
	if !c.w.Behind(c.number) {
		c.ws.mu.Unlock()
		return nil, context.Canceled
	}
	create := c.w.Request()
	c.ws.mu.Unlock()
	return remote, remote.SendMsg(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
}

// failed ends the client's stream if the sidecar's user isn't one any more: there would be no end to the attempts, without a word. (The stream that
// all follow may go on: a cluster of etcd's doesn't end it.)
func (c *catchUp) failed(err error) {
	if dismissed(err) {
		c.ws.mu.Lock()
		c.st.Fail(err)
		c.ws.mu.Unlock()
	}
}

// askProgress asks a member for progress again and again: it tells none while a watcher is behind.
func askProgress(ctx context.Context, remote grpc.ClientStream) {
	progress := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	for pause := minReopen; remote.SendMsg(progress) == nil && rest(ctx, pause); pause = min(2*pause, askAgain) {
	}
}
