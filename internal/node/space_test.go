package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// Transactions that only delete, as Kubernetes does, are carried out and raise no alarm without any room:
// it is they who make some.
func TestTransactionsThatDeleteNeedNoSpace(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.QuotaBytes = 1 })
	n, key := c.nodes[0], []byte("/a/k")
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
	}
	_, err := n.Txn(t.Context(), r)
	require.NoError(t, err)
	_, err = written(t.Context(), n, r)
	require.NoError(t, err)
	require.Empty(t, c.alarms())
	r.Failure = append(r.Failure, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}})
	_, err = n.Txn(t.Context(), r)
	require.ErrorIs(t, err, fault.NoSpace)
	require.Len(t, c.alarms(), 1)
}

// A server whose file is full raises the alarm for what others let in, whose files have room: puts, also those of transactions and
// sessions. Deletions raise none.
func TestAFullFileOfAServerThatIsNotAsked(t *testing.T) {
	c := newCluster(t, 3, 2, func(cfg *Config) {
		if cfg.ID == 1 {
			cfg.QuotaBytes = 1
		}
	})
	c.ready()
	n, key := c.nodes[1], []byte("/a/k")
	s := newSessionClient(c, 1)
	for what, write := range map[string]func() error{
		"put": func() error {
			_, err := n.Put(t.Context(), &pb.PutRequest{Key: key})
			return err
		},
		"transaction": func() error {
			put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}
			_, err := n.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{put}})
			return err
		},
		"lease": func() error {
			_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{TTL: 60})
			return err
		},
		"session": func() error {
			s.open(0)
			return nil
		},
	} {
		require.NoError(t, write(), what)
		require.Eventually(t, func() bool { return len(c.alarms()) > 0 }, time.Minute, 20*time.Millisecond, what)
		require.Equal(t, uint64(1), c.alarms()[0].MemberID, what)
		_, err := n.Put(t.Context(), &pb.PutRequest{Key: key})
		require.ErrorIs(t, err, fault.NoSpace, what)
		_, err = n.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1})
		require.NoError(t, err)
		_, err = n.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: key})
		require.NoError(t, err)
		require.Empty(t, c.alarms(), what)
	}
	s.handle.Close()
}

// So do puts that concern extensions, a registration, say, and what these write, because of reads and of deletions.
func TestAFullFileOfAServerThatIsNotAskedAndExtensions(t *testing.T) {
	c := newCluster(t, 3, 2, func(cfg *Config) {
		if cfg.ID == 1 {
			cfg.QuotaBytes = 1
		}
	})
	c.ready()
	n := c.nodes[1]
	raised := func(what string) {
		require.Eventually(t, func() bool { return len(c.alarms()) > 0 }, time.Minute, 20*time.Millisecond, what)
		require.Equal(t, uint64(1), c.alarms()[0].MemberID, what)
		c.disarm()
	}
	c.put(1, "/em/writes", `
		return {
			scope = { "/t/" },
			operations = { { op = "read", key = "/call" } }, events = { { event = "deleted", prefix = "/t/" } },
			read = function() put("/t/k", "1") return 1 end, event = function() put("/t/gone", "1") end,
		}`)
	raised("registration")
	_, err := n.Range(t.Context(), &pb.RangeRequest{Key: []byte("/call")})
	require.NoError(t, err)
	raised("call")
	_, err = n.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/t/k")})
	require.NoError(t, err)
	raised("event")
}

// What extensions write raises the alarm, whatever the request: the log then refuses what puts keys.
func TestCallsRaiseNoSpace(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.QuotaBytes = 1 << 20 })
	c.ready()
	c.put(0, "/em/writes", `
		local function write() put("/t/" .. revision(), "1") return 1 end
		return {
			scope = { "/t/" },
			operations = { { op = "read", key = "/call" }, { op = "txn", key = "/call" }, { op = "block", key = "/call" }, { op = "delete", key = "/call" } },
			events = { { event = "deleted", prefix = "/t/" } },
			read = write, txn = write, block = write, delete = write, event = function() put("/gone", "1") end,
		}`)
	s := newSessionClient(c, 0)
	s.open(0)
	defer func() { s.handle.Close() }()
	n, key := c.nodes[0], []byte("/call")
	read, remove := &pb.RangeRequest{Key: key}, &pb.DeleteRangeRequest{Key: key}
	for err := error(nil); !errors.Is(err, fault.NoSpace); {
		_, err = n.Put(t.Context(), &pb.PutRequest{Key: []byte("/full"), Value: make([]byte, 3<<10)})
	}
	require.False(t, n.hasRoom(n.current(), 0))
	c.disarm()
	for what, call := range map[string]func() error{
		"read": func() error {
			_, err := n.Range(t.Context(), read)
			return err
		},
		"transaction": func() error {
			_, err := n.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read}}}})
			return err
		},
		"watch": func() error {
			_, _, err := n.OpenWatch(t.Context(), &pb.WatchCreateRequest{Key: key})
			return err
		},
		"delete": func() error {
			_, err := written(t.Context(), n, remove)
			return err
		},
		"event": func() error {
			_, err := n.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/t/"), RangeEnd: []byte("/t0")})
			return err
		},
		"session's read": func() error {
			s.send(func(it *session.Item) {
				it.Kind, it.Key, it.Level, it.Body = stoapb.Kind_RANGE, key, stoapb.Level_STRICT, mustMarshal(read)
			})
			s.waitForReplies(0)
			return s.replies[len(s.replies)-1].err
		},
	} {
		require.Empty(t, c.alarms(), what)
		if err := call(); err != nil {
			require.ErrorIs(t, err, fault.NoSpace, what) // the alarm was faster
		}
		require.Eventually(t, func() bool { return len(c.alarms()) == 1 }, 20*time.Second, time.Millisecond, what)
		if err := call(); what == "event" {
			require.NoError(t, err) // the deletion takes no space
		} else {
			require.ErrorIs(t, err, fault.NoSpace, what)
		}
		c.disarm()
	}
}

// disarm lowers the alarm of the first server, once none is being raised.
func (c *cluster) disarm() {
	n := c.nodes[0]
	n.raising.mu.Lock()
	attempt := n.raising.done
	n.raising.mu.Unlock()
	if attempt != nil {
		<-attempt
	}
	_, err := n.Alarm(c.t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1})
	require.NoError(c.t, err)
}

func (c *cluster) alarms() []*pb.AlarmMember {
	resp, err := c.nodes[0].Alarm(c.t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	require.NoError(c.t, err)
	return resp.Alarms
}

// A session's writes raise the alarm when the file has reached its quota, and from then
// on the log refuses them.
func TestSessionRaisesNoSpace(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.QuotaBytes = 1 << 20 })
	s := newSessionClient(c, 0)
	s.open(0)
	defer func() { s.handle.Close() }()
	value := strings.Repeat("x", 100<<10)
	require.Eventually(t, func() bool {
		s.send(askPut("/a/k", value))
		s.waitForReplies(0)
		s.mu.Lock()
		defer s.mu.Unlock()
		err := s.replies[len(s.replies)-1].err
		if err != nil {
			require.ErrorIs(t, err, fault.NoSpace)
		}
		return err != nil
	}, 20*time.Second, time.Millisecond)
	require.Len(t, c.alarms(), 1)
	require.Equal(t, pb.AlarmType_NOSPACE, c.alarms()[0].Alarm)
}

// Without a leader no alarm can be raised: writes beyond the quota are refused when their clients leave, and not one after the
// other when each has tried.
func TestWritesWithoutSpaceAndLeaderEnd(t *testing.T) {
	c := newCluster(t, 2, 1, func(cfg *Config) { cfg.QuotaBytes = 1 })
	c.ready()
	c.stop(1)
	n := c.nodes[0]
	require.Eventually(t, func() bool { return n.Leader() == 0 }, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			_, err := n.Put(ctx, &pb.PutRequest{Key: []byte("/k")})
			require.ErrorIs(t, err, fault.NoSpace)
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), n.cfg.requestTimeout())
}
