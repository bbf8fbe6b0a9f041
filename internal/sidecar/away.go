package sidecar

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/connectivity"
)

// awayPause is how long a connection may be missing before the log says so, and the time between two looks for a cluster that is away.
const awayPause = 5 * time.Second

// follow logs that no member answers, with the reason, and that one does again: a sidecar that was given a wrong endpoint serves nothing, and
// its clients may be asleep, or wait. It asks the cluster at the beginning, and while there is no connection.
func (s *Server) follow(ctx context.Context) {
	if !s.up.ready(ctx) {
		return
	}
	away := false
	for {
		asked, cancel := context.WithTimeout(ctx, awayPause)
		err := s.ready(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			s.lg.Warn("no member of the cluster answers", zap.Strings("endpoints", s.up.o.Endpoints), zap.Error(err))
		case err == nil && away:
			s.lg.Info("a member of the cluster answers again")
		}
		if away = err != nil; away && !rest(ctx, awayPause) || !away && !s.lost(ctx) {
			return
		}
	}
}

// lost waits until there has been no connection for a while; false: ctx has ended.
func (s *Server) lost(ctx context.Context) bool {
	conn, err := s.up.conn(false)
	if err != nil {
		return true
	}
	for {
		state := conn.GetState()
		if missing(state) {
			if !rest(ctx, awayPause) {
				return false
			}
			if state = conn.GetState(); missing(state) {
				return true
			}
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

func missing(s connectivity.State) bool { return s != connectivity.Ready && s != connectivity.Idle }
