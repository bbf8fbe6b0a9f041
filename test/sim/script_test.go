package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// What scripts (Options.script) have in common.

// inMostRuns runs a script with several seeds. It reports whether a run has met what it is about; most have to.
func inMostRuns(t *testing.T, meets string, of func(*Options), script func(*cluster) bool) {
	seeds := max(48, *runs/10)
	require.Greater(t, inRuns(t, seeds, of, script), seeds/2, "runs in which "+meets)
}

// inSomeRuns is inMostRuns for what chance brings about now and then.
func inSomeRuns(t *testing.T, meets string, of func(*Options), script func(*cluster) bool) {
	require.NotZero(t, inRuns(t, max(40, *runs/10), of, script), "runs in which "+meets)
}

func inRuns(t *testing.T, seeds int, of func(*Options), script func(*cluster) bool) (met int) {
	for seed := range uint64(seeds) {
		o := options(t, seed)
		of(&o)
		o.script = func(c *cluster) {
			if script(c) {
				met++
			}
		}
		require.NoError(t, Run(o).Failure, "seed %d", seed)
	}
	return met
}

// begin starts all servers and clients, and waits for a leader.
func (c *cluster) begin() bool {
	c.start()
	if !c.waitFor(calmAfter, c.led) {
		c.fail("liveness", "there is no leader")
		return false
	}
	c.until(200 * time.Millisecond)
	return true
}

// beginIdle is begin without clients and troubles: only the script asks for anything.
func (c *cluster) beginIdle() bool {
	c.clients, c.sessions = nil, nil
	if !c.begin() {
		return false
	}
	c.hush()
	return true
}

// led says whether a server stamps.
func (c *cluster) led() bool { l := c.leader().life; return l != nil && l.core.replica.Leading() }

// last is the index of the last entry of a group's log.
func (s *server) last(group int) uint64 {
	index, err := s.life.core.logs[group].LastIndex()
	if err != nil {
		s.c.fail("log", "%v", err)
	}
	return index
}

// carriesOut reports whether a server has a command carried out that concerns all partitions.
func (c *cluster) carriesOut(at *server, kind command.Kind, body []byte) bool {
	return c.await(func(done func(error)) {
		at.life.core.replica.Submit(&replica.Write{
			Command: command.Command{Kind: kind, User: auth.Own, Body: body}, Parts: at.life.core.machine.Placement().All(), System: true,
			Done: func(o replica.Outcome) { done(o.Err) },
		})
	})
}

// clientOf is a client that talks to one server, and asks what the script asks.
func (c *cluster) clientOf(s *server) *client {
	return &client{c: c, id: 100, pinned: true, at: int(s.id - 1)}
}

// puts reports whether a server puts keys, one after the other.
func (c *cluster) puts(at *server, keys ...string) bool {
	for _, key := range keys {
		if !c.asks(at, strictly(&pb.PutRequest{Key: []byte(key), Value: []byte(c.value())})) {
			return false
		}
	}
	return true
}

// asks reports whether a server answers a request.
func (c *cluster) asks(at *server, r request) bool {
	o := c.clientOf(at).send(r)
	return c.waitFor(clientTimeout, func() bool { return o.state != open }) && o.state == ok
}

// losesMember loses a server for good, and the checks know.
func (c *cluster) losesMember(s *server) {
	c.lose(s)
	c.operator.gone = append(c.operator.gone, s.id)
}

// putsAtOnce is a transaction that puts keys.
func putsAtOnce(keys ...string) request {
	txn := &pb.TxnRequest{}
	for _, key := range keys {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}})
	}
	return strictly(txn)
}

// await reports whether what is asked for is answered without an error.
func (c *cluster) await(ask func(done func(error))) bool {
	answered, failed := false, error(nil)
	ask(func(err error) { answered, failed = true, err })
	return c.waitFor(calmAfter, func() bool { return answered }) && failed == nil
}

// keyIn returns a key of a group.
func (c *cluster) keyIn(core *core, group int) (key string) {
	for i := 0; key == "" || core.machine.Placement().Partition([]byte(key)) != group; i++ {
		key = fmt.Sprintf("/in-%d/%d/k", group, i)
	}
	return key
}

// carries reports whether an entry is one command of a kind.
func carries(e *raftpb.Entry, kind command.Kind) bool {
	entry, err := command.Decode(e.GetData())
	return err == nil && len(entry.Commands) == 1 && entry.Commands[0].Kind == kind
}

// isAt reports whether the next entry of a group is committed, and such a command.
func (c *core) isAt(p int, kind command.Kind) bool {
	commit, applied := c.replica.Progress(p)
	if commit == applied {
		return false
	}
	e, err := c.logs[p].Entry(applied + 1)
	return err == nil && carries(e, kind)
}
