package compat

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

func TestStatusAndMembers(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "v")
		members, err := e.cli.MemberList(e.ctx)
		require.NoError(t, err)
		require.Len(t, members.Members, e.nodes)
		ids := map[uint64]string{}
		for _, m := range members.Members {
			ids[m.ID] = m.Name
		}
		require.Len(t, ids, e.nodes)
		leaders := map[uint64]bool{}
		for i, s := range e.Servers {
			_, err := e.client(s.ClientURL).Get(e.ctx, "k") // caught up
			require.NoError(t, err)
			st, err := e.cli.Status(e.ctx, s.ClientURL)
			require.NoError(t, err)
			require.Equal(t, s.Name, ids[st.Header.MemberId], "server %d", i)
			require.Equal(t, members.Header.ClusterId, st.Header.ClusterId)
			require.GreaterOrEqual(t, st.Header.Revision, rev)
			require.Equal(t, "3.7.3", st.Version)
			require.Positive(t, st.DbSize)
			require.Positive(t, st.DbSizeInUse)
			require.LessOrEqual(t, st.DbSizeInUse, st.DbSize)
			require.Positive(t, st.RaftIndex)
			require.Positive(t, st.RaftAppliedIndex)
			require.Positive(t, st.RaftTerm)
			require.Empty(t, st.Errors)
			require.False(t, st.IsLearner)
			leaders[st.Leader] = true
		}
		require.Len(t, leaders, 1)
		for id := range leaders {
			require.Contains(t, ids, id)
		}
	})
}

func TestHashesAgree(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		_, revs := e.fill(3)
		_, err := e.cli.Delete(e.ctx, e.key("c", 1))
		require.NoError(t, err)
		_, err = e.cli.Compact(e.ctx, revs[7], clientv3.WithCompactPhysical())
		require.NoError(t, err)
		for _, rev := range []int64{0, revs[20], revs[9]} {
			hashes := map[uint32]bool{}
			for i, s := range e.Servers {
				_, err := e.client(s.ClientURL).Get(e.ctx, "k") // caught up
				require.NoError(t, err)
				h, err := pb.NewMaintenanceClient(e.dial(i)).HashKV(e.ctx, &pb.HashKVRequest{Revision: rev})
				require.NoError(t, err)
				require.Equal(t, revs[7], h.CompactRevision)
				if rev != 0 {
					require.Equal(t, rev, h.HashRevision)
				}
				hashes[h.Hash] = true
			}
			require.Len(t, hashes, 1, "at revision %d", rev)
		}
		m := pb.NewMaintenanceClient(e.conn)
		_, err = m.HashKV(e.ctx, &pb.HashKVRequest{Revision: 1 << 40})
		wantError(t, rpctypes.ErrGRPCFutureRev, err)
		_, err = m.HashKV(e.ctx, &pb.HashKVRequest{Revision: revs[3]})
		wantError(t, rpctypes.ErrGRPCCompacted, err)
		h, err := m.Hash(e.ctx, &pb.HashRequest{})
		require.NoError(t, err)
		require.NotZero(t, h.Hash)
	})
}

// The file of `etcdctl snapshot save` can be read by etcdutl and served by
// etcd.
func TestSnapshotIsEtcds(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		start, end := e.all()
		want := e.get(start, end)
		file := filepath.Join(t.TempDir(), "snap.db")
		e.etcdctl("snapshot", "save", file)

		etcdutl, err := process.Peer("etcdutl")
		require.NoError(t, err)
		out, err := exec.Command(etcdutl, "snapshot", "status", file).CombinedOutput()
		require.NoError(t, err, string(out))

		data := filepath.Join(t.TempDir(), "restored")
		out, err = exec.Command(etcdutl, "snapshot", "restore", file, "--data-dir="+data).CombinedOutput()
		require.NoError(t, err, string(out))
		etcd, err := process.Peer("etcd")
		require.NoError(t, err)
		c := process.NewT(t, process.Spec{Binary: process.Binary{Path: etcd}})
		require.NoError(t, os.Rename(data, c.Servers[0].DataDir))
		require.NoError(t, c.Start(t.Context()))
		got, err := e.client(c.Servers[0].ClientURL).Get(e.ctx, start, end)
		require.NoError(t, err)
		require.Len(t, got.Kvs, len(keys))
		for i := range got.Kvs {
			require.Equal(t, want.Kvs[i].String(), got.Kvs[i].String())
		}
	})
}

func TestSnapshotStream(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		e.fill(1)
		s, err := pb.NewMaintenanceClient(e.conn).Snapshot(e.ctx, &pb.SnapshotRequest{})
		require.NoError(t, err)
		var size, last int64
		for {
			r, err := s.Recv()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			size, last = size+int64(len(r.Blob)), int64(r.RemainingBytes)
		}
		require.Zero(t, last)
		require.EqualValues(t, 32, size%512, "the file's pages and their SHA-256 behind them")
	})
}

func TestDefragmentAndMoveLeader(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(2)
		for i, s := range e.Servers {
			_, err := e.cli.Defragment(e.ctx, s.ClientURL)
			require.NoError(t, err, "server %d", i)
		}
		start, end := e.all()
		require.Len(t, e.get(start, end).Kvs, len(keys))

		lead := e.leader()
		m := pb.NewMaintenanceClient(e.dial(lead))
		_, err := m.MoveLeader(e.ctx, &pb.MoveLeaderRequest{TargetID: 0x1234})
		wantError(t, rpctypes.ErrGRPCBadLeaderTransferee, err)
		if e.nodes == 1 {
			return
		}
		to := (lead + 1) % e.nodes
		st, err := e.cli.Status(e.ctx, e.Servers[to].ClientURL)
		require.NoError(t, err)
		_, err = pb.NewMaintenanceClient(e.dial(to)).MoveLeader(e.ctx, &pb.MoveLeaderRequest{TargetID: st.Header.MemberId})
		wantError(t, rpctypes.ErrGRPCNotLeader, err)
		_, err = m.MoveLeader(e.ctx, &pb.MoveLeaderRequest{TargetID: st.Header.MemberId})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return e.leader() == to }, time.Minute, 50*time.Millisecond)
		leads := pb.NewMaintenanceClient(e.dial(to))
		require.Eventually(t, func() bool { // it may not have opened its epoch yet
			_, err := leads.MoveLeader(e.ctx, &pb.MoveLeaderRequest{TargetID: st.Header.MemberId})
			return err == nil
		}, time.Minute, 50*time.Millisecond, "it leads already")
		require.NotZero(t, e.put(keys[0], "goes on"))
	})
}

func TestGRPCHealthService(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		for i := range e.Servers {
			h, err := healthpb.NewHealthClient(e.dial(i)).Check(e.ctx, &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			require.Equal(t, healthpb.HealthCheckResponse_SERVING, h.Status)
		}
	})
}

func TestAuthIsOff(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		a := pb.NewAuthClient(e.conn)
		st, err := a.AuthStatus(e.ctx, &pb.AuthStatusRequest{})
		require.NoError(t, err)
		require.False(t, st.Enabled)
		_, err = a.Authenticate(e.ctx, &pb.AuthenticateRequest{Name: "root", Password: "x"})
		wantError(t, rpctypes.ErrGRPCAuthNotEnabled, err)
	})
}

// The quota: writes are refused with NOSPACE, deletions are not, and the alarm
// can be disarmed once there is room.
func TestQuotaRaisesNoSpace(t *testing.T) {
	own(t, 1, []string{"--quota-backend-bytes=4194304"}, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		value := strings.Repeat("x", 100<<10)
		var err error
		for i := 0; i < 2000 && err == nil; i++ {
			_, err = e.cli.Put(e.ctx, e.key(dirs[i%8], i%16), value)
		}
		wantError(t, rpctypes.ErrGRPCNoSpace, err)
		alarms, err := e.cli.AlarmList(e.ctx)
		require.NoError(t, err)
		require.NotEmpty(t, alarms.Alarms)
		require.Equal(t, pb.AlarmType_NOSPACE, alarms.Alarms[0].Alarm)
		_, err = e.cli.Put(e.ctx, k, "small")
		wantError(t, rpctypes.ErrGRPCNoSpace, err)
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpPut(k, "small")).Commit()
		wantError(t, rpctypes.ErrGRPCNoSpace, err)
		_, err = e.cli.Grant(e.ctx, 100)
		wantError(t, rpctypes.ErrGRPCNoSpace, err)

		start, end := e.all()
		del, err := e.cli.Delete(e.ctx, start, end)
		require.NoError(t, err)
		require.NotZero(t, del.Deleted)
		_, err = e.cli.Compact(e.ctx, del.Header.Revision, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		// A follower may not have finished the compaction yet.
		require.Eventually(t, func() bool {
			for _, s := range e.Servers {
				_, err := e.cli.Defragment(e.ctx, s.ClientURL)
				require.NoError(t, err)
			}
			_, err = e.cli.AlarmDisarm(e.ctx, &clientv3.AlarmMember{})
			require.NoError(t, err)
			_, err := e.cli.Put(e.ctx, k, "small")
			return err == nil
		}, time.Minute, 200*time.Millisecond)
	})
}

// A client that requires a leader gets an error when there is none;
// serializable reads are still served.
func TestWithoutQuorum(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		e.put(k, "v")
		lone := e.client(e.Servers[0].ClientURL)
		_, err := lone.Get(e.ctx, k)
		require.NoError(t, err)
		require.NoError(t, e.Servers[1].Kill())
		require.NoError(t, e.Servers[2].Kill())

		require.Eventually(t, func() bool {
			demanding := metadata.AppendToOutgoingContext(e.ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
			_, err := e.kv.Range(demanding, &pb.RangeRequest{Key: []byte(k), Serializable: true})
			return err != nil && describe(err) == describe(rpctypes.ErrGRPCNoLeader)
		}, time.Minute, 100*time.Millisecond)
		got, err := lone.Get(e.ctx, k, clientv3.WithSerializable())
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte(k), Value: []byte("w")})
		require.Contains(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, status.Code(err), "%v", err)
		_, err = e.kv.Range(e.ctx, &pb.RangeRequest{Key: []byte(k)})
		require.Contains(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, status.Code(err), "%v", err)

		w, err := pb.NewWatchClient(e.conn).Watch(metadata.AppendToOutgoingContext(e.ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
		require.NoError(t, err)
		_, err = w.Recv()
		wantError(t, rpctypes.ErrGRPCNoLeader, err)

		require.NoError(t, e.Cluster.Start(t.Context()))
		require.Eventually(t, func() bool { _, err := lone.Put(e.ctx, k, "again"); return err == nil }, time.Minute, 100*time.Millisecond)
	})
}
