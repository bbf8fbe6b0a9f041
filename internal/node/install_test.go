package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/version"
)

// snapshots is a cluster of three of which one follower falls behind on demand.
type snapshots struct {
	*cluster
	disks    []sync.RWMutex // held to delay syncs
	leader   int
	follower int
	term     uint64
	cuts     atomic.Int64 // of links
}

func newSnapshots(t *testing.T, partitions int, set ...func(*Config)) *snapshots {
	s := &snapshots{cluster: newCluster(t, 3, partitions, set...), disks: make([]sync.RWMutex, 3)}
	for i := range s.nodes {
		s.stop(i)
		s.configs[i].Logger = s.configs[i].Logger.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
			if e.Message == "no link to the peer" || e.Message == "link from the peer has ended" {
				s.cuts.Add(1)
			}
			return nil
		}))
		s.configs[i].Observe.WALSync = func(time.Duration) {
			s.disks[i].RLock()
			defer s.disks[i].RUnlock()
		}
	}
	for i := range s.nodes {
		s.start(i)
	}
	s.ready()
	s.put(0, "/d0/k", "first")
	s.leader = s.leading()
	s.follower = (s.leader + 1) % 3
	for i, n := range s.nodes {
		for _, peer := range n.transport.Peers() {
			require.Eventually(t, func() bool { return n.transport.Connected(peer) }, time.Minute, time.Millisecond, "server %d and %d", i+1, peer)
		}
	}
	s.term = s.nodes[s.leader].RaftTerm()
	s.cuts.Store(0)
	return s
}

// calm tells whether the leader and the links are still the first ones: that they change on a busy machine is not caused by a snapshot.
func (s *snapshots) calm() bool {
	return s.nodes[s.leader].RaftTerm() == s.term && s.cuts.Load() == 0
}

// leave lets the follower fall behind: it applies nothing any more. Its requests go to
// the leader, and the answers come back.
func (s *snapshots) leave() { s.nodes[s.follower].core.Load().stopLoops() }

// hold keeps the leader from committing anything until the answer is called.
func (s *snapshots) hold() (release func()) {
	s.disks[s.leader].Lock()
	release = sync.OnceFunc(s.disks[s.leader].Unlock)
	s.t.Cleanup(release)
	return release
}

// cut takes a snapshot of the leader's; install has the follower install it.
func (s *snapshots) cut() *backend.Snapshot {
	n := s.nodes[s.leader]
	require.NoError(s.t, n.flushNow())
	cut, err := n.core.Load().backend.Snapshot()
	require.NoError(s.t, err)
	return cut
}

func (s *snapshots) install(cut *backend.Snapshot) {
	head, file := s.sent(cut)
	n := s.nodes[s.follower]
	require.NoError(s.t, n.install(context.Background(), uint64(s.leader+1), head, strings.NewReader(file)))
	require.EqualValues(s.t, 1, n.installed.Load())
}

// sent is what the leader sends of a cut.
func (s *snapshots) sent(cut *backend.Snapshot) (*peerpb.SnapshotHeader, string) {
	head := &peerpb.SnapshotHeader{Size: uint64(cut.Size)}
	for p, at := range cut.Positions {
		head.Positions = append(head.Positions, &peerpb.Position{Group: uint32(p), Index: at.Index, Term: at.Term})
	}
	var file strings.Builder
	_, err := cut.WriteTo(&file)
	require.NoError(s.t, err)
	require.NoError(s.t, cut.Close())
	return head, file.String()
}

// A snapshot that can't be used is refused while the server goes on from its own file.
func TestADamagedSnapshotStopsNothing(t *testing.T) {
	t.Parallel()
	s := newSnapshots(t, 2)
	s.agreed(version.Newest) // the file has checksums
	n := s.nodes[s.follower]
	s.leave()
	s.put(s.leader, "/d0/k", "second")
	head, file := s.sent(s.cut())

	before := n.core.Load()
	at := strings.LastIndex(file, "second")
	for _, damaged := range []string{file[:len(file)/2], file[:at] + "S" + file[at+1:]} {
		err := n.install(context.Background(), uint64(s.leader+1), head, strings.NewReader(damaged))
		require.ErrorIs(t, err, backend.ErrDamaged)
		require.Same(t, before, n.core.Load())
	}
	left, err := filepath.Glob(n.dbPath() + "?*")
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, n.install(context.Background(), uint64(s.leader+1), head, strings.NewReader(file)))
	require.Eventually(t, func() bool { return n.Revision() >= s.nodes[s.leader].Revision() }, 30*time.Second, 10*time.Millisecond)
}

// A snapshot that can't be stored, because the disk hangs, is sent again and again. Who has given up leaves nothing behind here.
func TestASnapshotIsNotWaitedForByWhoHasGivenUp(t *testing.T) {
	s := newSnapshots(t, 1)
	n := s.nodes[s.follower]
	s.leave()
	s.put(s.leader, "/d0/k", "second")
	head, file := s.sent(s.cut())
	hangs, received := io.Pipe()
	first := make(chan error, 1)
	go func() { first <- n.install(t.Context(), uint64(s.leader+1), head, hangs) }()
	require.Eventually(t, n.spool.active.Load, 20*time.Second, time.Millisecond)
	gone, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	require.ErrorIs(t, n.install(gone, uint64(s.leader+1), head, strings.NewReader(file)), context.DeadlineExceeded)
	_, err := io.Copy(received, strings.NewReader(file))
	require.NoError(t, errors.Join(err, received.Close()))
	require.NoError(t, <-first)
	require.EqualValues(t, 1, n.installed.Load())
}

// What a server that was killed has left beside its file is gone once it has started again.
func TestRestsAreRemovedAtTheStart(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.ready()
	path := c.nodes[0].dbPath()
	c.stop(0)
	for _, rest := range []string{".received", ".defrag", ".copy1"} {
		require.NoError(t, os.WriteFile(path+rest, make([]byte, 1000), 0o600))
	}
	c.start(0)
	left, err := filepath.Glob(path + "?*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// Tokens from before authentication was disabled are void on a server that learns of it by a snapshot, too.
func TestASnapshotEndsTokens(t *testing.T) {
	s := newSnapshots(t, 2, simpleTokens)
	s.addRoot()
	s.enable(s.leader)
	ctx := withToken(t.Context(), s.token(s.leader, "root"))
	_, err := s.nodes[s.follower].Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	require.NoError(t, err)
	s.leave()
	s.changeAuth(s.leader, &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}})
	s.enable(s.leader)
	s.install(s.cut())
	_, err = s.nodes[s.follower].Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	require.ErrorIs(t, err, fault.InvalidAuthToken)
	_, err = s.nodes[s.follower].Range(withToken(t.Context(), s.token(s.leader, "root")), &pb.RangeRequest{Key: []byte("k")})
	require.NoError(t, err)
}

// A request whose simple token this server has still to learn of doesn't fail because a snapshot comes first.
func TestASnapshotBeforeATokenIsKnown(t *testing.T) {
	s := newSnapshots(t, 2, simpleTokens)
	s.addRoot()
	s.enable(s.leader)
	n := s.nodes[s.follower]
	require.Eventually(t, n.AuthEnabled, 20*time.Second, time.Millisecond)
	s.leave()
	s.changeAuth(s.leader, &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "more"}})
	cut := s.cut()
	ctx := withToken(t.Context(), s.token(s.leader, "root"))
	answer := make(chan error, 1)
	go func() {
		_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		answer <- err
	}()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, answer)
	s.install(cut)
	require.NoError(t, <-answer)
}

// pending is how many writes of single partitions wait at the leader.
func (s *snapshots) pending() (n int64) {
	c := s.nodes[s.leader].core.Load()
	for p := range c.stores {
		n += c.replica.Standing(p).Pending
	}
	return n
}

// asked is a request in flight.
type asked struct {
	what string
	done chan error
}

func (s *snapshots) ask(what string, do func(context.Context, *Node) error) asked {
	a := asked{what, make(chan error, 1)}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		a.done <- do(ctx, s.nodes[s.follower])
	}()
	return a
}

// answered waits for the answer, which is an error only if the machine was too busy.
func (s *snapshots) answered(a asked) bool {
	err := <-a.done
	if err != nil {
		require.Eventually(s.t, func() bool { return !s.calm() }, time.Second, time.Millisecond, "%s: %v", a.what, err)
	}
	return err == nil
}

func (s *snapshots) unanswered(a asked) {
	select {
	case err := <-a.done:
		require.False(s.t, s.calm(), "%s has an answer: %v", a.what, err)
		a.done <- err
	default:
	}
}

func aPut(key, value string) func(context.Context, *Node) error {
	return func(ctx context.Context, n *Node) error {
		_, err := n.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		return err
	}
}

func aTxn(keys ...string) func(context.Context, *Node) error {
	return func(ctx context.Context, n *Node) error {
		txn := &pb.TxnRequest{}
		for _, key := range keys {
			put := &pb.PutRequest{Key: []byte(key), Value: []byte("txn")}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		_, err := n.Txn(ctx, txn)
		return err
	}
}

func aGet(key, want string) func(context.Context, *Node) error {
	return func(ctx context.Context, n *Node) error {
		resp, err := n.Range(ctx, &pb.RangeRequest{Key: []byte(key)})
		if err != nil {
			return err
		}
		if kvs := resp.Message().Kvs; len(kvs) != 1 || string(kvs[0].Value) != want {
			return fmt.Errorf("%s is %v", key, kvs)
		}
		return nil
	}
}

// A snapshot puts a follower's state away while requests of its clients are under way at
// the leader, have been answered by it, or wait for the follower to catch up. None of
// them fails, and what a client has written it finds here.
func TestRequestsOutliveASnapshot(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			s := newSnapshots(t, partitions)
			c := newSessionClient(s.cluster, s.follower)
			c.open(0)
			s.leave()
			before := s.put(s.leader, "/d0/k", "in the cut")
			cut := s.cut()
			token := s.put(s.leader, "/d1/k", "behind the cut")

			landed := s.ask("a put that the leader has answered", aPut("/d2/k", "landed"))
			reads := []asked{
				s.ask("a strict read of what is in the cut", aGet("/d0/k", "in the cut")),
				s.ask("a strict read of what is behind it", aGet("/d1/k", "behind the cut")),
			}
			require.Eventually(t, func() bool {
				return len(s.get(s.leader, "/d2/k", "").Kvs) == 1 || !s.calm()
			}, 20*time.Second, time.Millisecond)
			time.Sleep(50 * time.Millisecond) // until the answers are there
			s.unanswered(landed)

			release := s.hold()
			var writes []asked
			for i := range 10 {
				writes = append(writes, s.ask("a put", aPut(fmt.Sprintf("/e%d/k", i), "under way")))
			}
			require.Eventually(t, func() bool { return s.pending() >= 10 || !s.calm() }, 20*time.Second, time.Millisecond)
			c.send(askPut("/f/k", "in a session"), askPut("/g/k", "in a session"), func(it *session.Item) {
				askGet("/d1/k", stoapb.Level_CAUSAL)(it)
				it.Token = token
			})
			writes = append(writes,
				s.ask("a transaction", aTxn("/d3/k", "/d4/k", "/d5/k")),
				s.ask("a lease", func(ctx context.Context, n *Node) error {
					_, err := n.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 77, TTL: 60})
					return err
				}))
			time.Sleep(50 * time.Millisecond)

			s.install(cut)
			done := s.answered(landed)
			for _, w := range writes {
				s.unanswered(w)
			}
			release()
			for _, a := range append(writes, reads...) {
				s.answered(a)
			}
			c.waitForReplies(0)
			resp, err := s.nodes[s.follower].Range(context.Background(), &pb.RangeRequest{Key: []byte("/d2/k"), Serializable: true})
			require.NoError(t, err)
			require.Greater(t, resp.Header.GetRevision(), before)
			if kvs := resp.Message().Kvs; done || len(kvs) > 0 {
				require.Len(t, kvs, 1)
				require.Equal(t, "landed", string(kvs[0].Value))
			}
			under := s.get(s.follower, "/e", "/f").Kvs
			if s.calm() {
				require.Zero(t, c.resumed)
				require.Equal(t, "behind the cut", c.replies[2].value)
				require.Len(t, under, 10)
			}
		})
	}
}

// Clients of a server that gets one snapshot after the other don't notice.
func TestNobodyNoticesSnapshots(t *testing.T) {
	const clients, times = 6, 5
	s := newSnapshots(t, 3)
	var over atomic.Bool
	var writers, watchers sync.WaitGroup
	n := s.nodes[s.follower]
	for i := range clients {
		key := fmt.Sprintf("/c%d/k", i)
		w := n.NewWatchStream(context.Background())
		w.Create(&pb.WatchCreateRequest{Key: []byte(key), StartRevision: 1})
		writers.Go(func() {
			for version := 1; !over.Load(); version++ {
				value := fmt.Sprint(version)
				s.answered(s.ask("a put", aPut(key, value)))
				s.answered(s.ask("a strict read", aGet(key, value)))
				s.answered(s.ask("a transaction", aTxn(fmt.Sprintf("/x%d/k", i), fmt.Sprintf("/y%d/k", i))))
				s.answered(s.ask("a serializable read", func(ctx context.Context, n *Node) error {
					_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("/c"), RangeEnd: []byte("/d"), Serializable: true})
					return err
				}))
			}
		})
		watchers.Go(func() {
			defer w.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			for version := int64(1); !over.Load(); {
				r, err := w.Recv(ctx)
				require.NoError(t, err)
				for _, e := range r.Events {
					require.Equal(t, version, e.Kv.Version)
					version++
				}
			}
		})
	}
	for range times {
		before := n.installed.Load()
		s.leave()
		s.put(s.leader, "/d0/k", "ahead")
		require.Eventually(t, func() bool {
			require.NoError(t, s.nodes[s.leader].streamSnapshot(uint64(s.follower+1), true))
			return n.installed.Load() > before
		}, 10*time.Second, time.Millisecond)
		time.Sleep(100 * time.Millisecond)
	}
	over.Store(true)
	writers.Wait()
	for i := range clients {
		s.put(s.leader, fmt.Sprintf("/c%d/k", i), "the end") // for the watchers
	}
	watchers.Wait()
}

// A peer for which the pauses were too long is sent the next snapshot without them.
func TestASecondSnapshotHurries(t *testing.T) {
	var s sending
	begin := func(to uint64, at time.Time, wantSend, wantHurry bool) {
		t.Helper()
		send, hurry := s.begin(to, at)
		require.Equal(t, []bool{wantSend, wantHurry}, []bool{send, hurry})
	}
	now := time.Now()
	begin(2, now, true, false)
	begin(2, now, false, false) // under way
	begin(3, now, true, false)
	s.ended(2, now)
	begin(2, now.Add(time.Second), true, true)
	s.ended(2, now.Add(time.Minute))
	begin(2, now.Add(time.Minute+hurryFor), true, false)
}
