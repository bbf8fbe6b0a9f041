package sidecar

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/fault"
)

// lanes are the sessions that requests of all local clients share: one for reads, and one for
// the writes of each partition. A session keeps reads and writes in order, so each would wait for
// the others there; and writes of one partition take one log.
type lanes struct {
	up *upstream
	lg *zap.Logger
	m  *metrics

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	reads *lane
	mu    sync.RWMutex
	// writes is by partition. A lane is made when it is needed.
	writes map[int]*lane
}

func openLanes(up *upstream, m *metrics, lg *zap.Logger) *lanes {
	ls := &lanes{up: up, lg: lg, m: m, writes: map[int]*lane{}}
	ls.ctx, ls.cancel = context.WithCancel(context.Background())
	ls.reads = newLane(m)
	ls.wg.Go(func() { ls.keep(ls.reads) })
	return ls
}

// close is for when there are no calls any more.
func (ls *lanes) close() {
	ls.cancel()
	ls.wg.Wait()
}

// lane is the one for a request; nil if there is none: keys of several partitions would have
// those behind it wait for all of them.
func (ls *lanes) lane(r *shared) *lane {
	if !r.write {
		return ls.reads
	}
	own, err := ls.up.user()
	if err != nil {
		return nil
	}
	partition := -1
	for _, key := range r.keys {
		p, known := own.Partition(string(key))
		if !known || partition >= 0 && p != partition {
			return nil
		}
		partition = p
	}
	ls.mu.RLock()
	l := ls.writes[partition]
	ls.mu.RUnlock()
	if l == nil {
		l = ls.openWrites(partition)
	}
	return l
}

func (ls *lanes) openWrites(partition int) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.writes[partition]
	if l == nil && ls.ctx.Err() == nil {
		l = newLane(ls.m)
		ls.writes[partition] = l
		ls.wg.Go(func() { ls.keep(l) })
	}
	return l
}

const minReopen, maxReopen, closeTimeout = 50 * time.Millisecond, 5 * time.Second, time.Second

// keep opens a session for a lane again and again.
func (ls *lanes) keep(l *lane) {
	if !ls.up.ready(ls.ctx) {
		return
	}
	for pause := minReopen; ; pause = min(2*pause, maxReopen) {
		s, err := ls.openSession()
		if err == nil {
			pause = minReopen
			ls.m.sessions.Inc()
			l.carry(ls.ctx, session{s})
			ls.m.sessions.Dec()
			err = s.Err()
		}
		switch {
		case ls.ctx.Err() != nil:
			if s != nil {
				ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
				_ = s.Close(ctx)
				cancel()
			}
			return
		case status.Code(err) == codes.Unimplemented:
			ls.lg.Info("the cluster has no sessions: each request is forwarded by itself")
			return
		}
		ls.lg.Warn("lost a session, or failed to open one", zap.Error(err))
		if !rest(ls.ctx, pause) {
			return
		}
	}
}

func (ls *lanes) openSession() (*client.Session, error) {
	own, err := ls.up.user()
	if err != nil {
		return nil, err
	}
	return own.Session(ls.ctx)
}

// do carries a request out over a session; errNotTaken if it has to be a call of its own.
func (ls *lanes) do(ctx context.Context, r *shared) ([]byte, error) {
	l := ls.lane(r)
	if l == nil {
		return nil, errNotTaken
	}
	answer, err := l.do(ctx, *r)
	if err != nil {
		return nil, verdict(err, r.write)
	}
	return answer, nil
}

// verdict is the error of a call whose request failed in a lane: a member's answer, or
// errNotTaken if it had no effect and that answer isn't its own, or that the outcome is unknown.
func verdict(err error, write bool) error {
	switch {
	case errors.Is(err, errNotTaken), errors.Is(err, client.ErrNotSent), errors.Is(err, client.ErrOvertaken), errors.Is(err, client.ErrRequestTooLarge):
		return errNotTaken
	case errors.Is(err, errLost) && !write:
		return errNotTaken
	case errors.Is(err, errLost), strings.Contains(err.Error(), fault.ResultForgotten.Error()):
		return rpctypes.ErrGRPCTimeoutDueToConnectionLost
	}
	st := status.Convert(asStatus(err))
	if st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), quota) {
		return errNotTaken
	}
	return st.Err()
}

// quota begins the error of a request above a rate. In a session it is also that of requests
// behind it, of other clients.
const quota = "stoa: quota of "
