package replica

import (
	"fmt"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// raftLogger passes Raft's messages to zap, its routine ones at debug level: P
// groups would fill an operator's log with them.
type raftLogger struct {
	*zap.SugaredLogger
	group int
}

func (l raftLogger) Info(v ...any)                 { l.SugaredLogger.Debug(v...) }
func (l raftLogger) Infof(format string, v ...any) { l.Debugf(format, v...) }
func (l raftLogger) Warning(v ...any)              { l.Warn(v...) }

// Warningf logs for one group what all of them have to say when a leader loses its quorum.
func (l raftLogger) Warningf(format string, v ...any) {
	if l.group != 0 && strings.HasSuffix(format, "stepped down to follower since quorum is not active") {
		l.Debugf(format, v...)
		return
	}
	l.Warnf(format, v...)
}

// Panicf is how Raft gives up. Two of its reasons are not mistakes in a program: this
// server's log is not what it was, or another history has been made without it.
func (l raftLogger) Panicf(format string, v ...any) {
	for _, reason := range []string{"tocommit(", "entry %d conflict with committed entry"} {
		if strings.HasPrefix(format, reason) {
			text, _, _ := strings.Cut(fmt.Sprintf(format, v...), ".")
			panic(contradiction(text))
		}
	}
	l.SugaredLogger.Panicf(format, v...)
}

// contradiction is what Raft says of a log that contradicts the leader's.
type contradiction string

// receiveRaft gives a peer's message to Raft.
func (g *group) receiveRaft(m *raftpb.Message) {
	defer func() {
		x := recover()
		c, ok := x.(contradiction)
		if !ok {
			if x != nil {
				panic(x)
			}
			return
		}
		g.failed = true
		g.r.cfg.Fatal(fmt.Errorf("the log of group %d contradicts that of the leader, %x: it has lost entries that this member had acknowledged, "+
			"or is an older copy (Raft: %s)", g.id, m.GetFrom(), string(c)))
	}()
	g.hearCommit(m)
	// An error only says that the message is not for the current configuration or is
	// of a kind that peers don't send.
	_ = g.node.Step(m)
}
