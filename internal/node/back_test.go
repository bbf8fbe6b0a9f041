package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
)

// A snapshot takes a member back behind a right and a write that were answered there. A serializable read that comes
// before it has executed its log again is neither refused for want of that right, nor older than the write.
func TestASnapshotTakesNoReadsBack(t *testing.T) {
	s := newSnapshots(t, 2, simpleTokens)
	s.addRoot()
	s.addUser("worker")
	s.enable(s.leader)
	n := s.nodes[s.follower]
	ctx := withToken(t.Context(), s.token(s.follower, "worker"))
	root := withToken(t.Context(), s.token(s.follower, "root"))
	_, file := s.sent(s.cut())
	s.changeAuth(s.follower, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: "worker", Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: []byte("/d0/k")},
	}})
	put, err := n.Put(ctx, &pb.PutRequest{Key: []byte("/d0/k"), Value: []byte("second")})
	require.NoError(t, err)

	for i := range s.nodes { // none says how far this one's log is committed
		if i != s.follower {
			s.stop(i)
		}
	}
	require.NoError(t, backend.Receive(n.dbPath(), backend.Identity{Cluster: n.cfg.ClusterID, Server: n.cfg.ID}, strings.NewReader(file)))
	require.NoError(t, n.replace(0))
	got := &pb.RangeRequest{Key: []byte("/d0/k"), Serializable: true}
	type answer struct {
		revision int64
		value    string
		err      error
	}
	answers := make(chan answer, 2)
	go func() {
		resp, err := n.Range(ctx, got)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		m := resp.Message()
		answers <- answer{m.Header.Revision, string(m.Kvs[0].Value), nil}
	}()
	go func() {
		resp, err := n.Txn(root, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: got}}}})
		if err != nil {
			answers <- answer{err: err}
			return
		}
		answers <- answer{resp.Header.Revision, string(resp.Responses[0].GetResponseRange().Kvs[0].Value), nil}
	}()
	time.Sleep(100 * time.Millisecond)
	for i := range s.nodes {
		if i != s.follower {
			s.start(i)
		}
	}
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range cap(answers) {
		select {
		case a := <-answers:
			require.NoError(t, a.err)
			require.GreaterOrEqual(t, a.revision, put.Header.Revision)
			require.Equal(t, "second", a.value)
		case <-limit.Done():
			t.Fatal("a read isn't answered")
		}
	}
}
