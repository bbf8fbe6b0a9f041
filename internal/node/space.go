package node

import (
	"context"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// The approximate overhead of a key in the file; etcd counts the same.
const keyOverhead = 512

func (n *Node) hasRoom(c *core, bytes int) bool {
	return n.cfg.QuotaBytes <= 0 || c.backend.Size()+int64(bytes)+keyOverhead <= n.cfg.QuotaBytes
}

// grows raises the alarm if there is no room for what isn't refused before it is in the log: the writes
// of sessions, and what extensions write because of any request, be it a read.
func (n *Node) grows(bytes int) {
	if !n.hasRoom(n.core.Load(), bytes) {
		n.raiseNoSpace()
	}
}

// outgrown raises the alarm because of what a command, or an extension, puts, though the file of this server is full: another server has
// let it in, by its own file, which may be smaller, as it was defragmented, or by a higher quota.
func (n *Node) outgrown() {
	if n.core.Load() != nil {
		n.raiseNoSpace()
	}
}

// takesRoom reports whether a command is one that is refused without space, whatever extensions write because of it.
func takesRoom(c command.Command) bool {
	kind, body := c.Inner()
	if kind == command.Extended {
		call, err := command.DecodeCall(body)
		if err != nil {
			return false
		}
		kind, body = call.Kind, call.Body
	}
	if kind == command.Txn {
		r := new(pb.TxnRequest)
		return proto.Unmarshal(body, r) == nil && kvwire.PutBytes(r) > 0
	}
	return kind.TakesSpace()
}

// admit refuses writes beyond the quota, and raises the alarm before that: the
// client may look for it.
func (n *Node) admit(ctx context.Context, bytes int) error {
	c, err := n.present(ctx)
	if err != nil || n.hasRoom(c, bytes) {
		return err
	}
	if attempt := n.raiseNoSpace(); attempt != nil {
		n.cfg.Detach(ctx)
		select {
		case <-attempt:
		case <-ctx.Done():
		}
	}
	return fault.NoSpace
}

// raising is the alarm NOSPACE on its way into the log. All who would raise it share one attempt, which may take as long
// as any request, as without a leader: one behind the other they would wait for that long each.
type raising struct {
	mu   sync.Mutex
	done chan struct{} // closed at the end of the attempt that is under way; nil: none is
}

// raiseNoSpace begins an attempt and returns what is closed at the end of it, or nil if the alarm is raised. It doesn't wait.
func (n *Node) raiseNoSpace() <-chan struct{} {
	n.raising.mu.Lock()
	defer n.raising.mu.Unlock()
	if n.raising.done != nil {
		return n.raising.done
	}
	alarm := &pb.AlarmMember{MemberID: n.cfg.ID, Alarm: pb.AlarmType_NOSPACE}
	if len(missingFrom(n.ActiveAlarms(), []*pb.AlarmMember{alarm})) == 0 {
		return nil
	}
	n.raising.done = make(chan struct{})
	go n.raise(n.raising.done)
	return n.raising.done
}

func (n *Node) raise(done chan struct{}) {
	n.log.Warn("the backend file has reached its quota; raising the NOSPACE alarm",
		zap.Int64("bytes", n.core.Load().backend.Size()), zap.Int64("quota", n.cfg.QuotaBytes))
	_, err := n.Alarm(asServer(n.life), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: n.cfg.ID,
	})
	if err != nil && n.life.Err() == nil {
		n.log.Warn("raising the NOSPACE alarm failed", zap.Error(err))
	}
	n.raising.mu.Lock()
	n.raising.done = nil
	n.raising.mu.Unlock()
	close(done)
}
