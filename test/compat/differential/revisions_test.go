package differential

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func TestRevisionsWithHoles(t *testing.T) {
	r := newRevisions()
	require.NoError(t, r.pair(2, 4))
	require.NoError(t, r.pair(3, 5))
	require.Error(t, r.pair(5, 9), "the reference has no holes")
	require.Error(t, r.pair(4, 5), "no revision comes twice")

	require.Equal(t, []int64{0, 1, 4, 5, 6, -1}, []int64{r.forth(0), r.forth(1), r.forth(2), r.forth(3), r.forth(4), r.forth(-1)})
	require.Equal(t, []int64{0, 1, -2, -3, 2, 3, -6}, []int64{r.back(0), r.back(1), r.back(2), r.back(3), r.back(4), r.back(5), r.back(6)})
	require.Equal(t, []int64{1, 1, 2, 3, 3}, []int64{r.floor(2), r.floor(3), r.floor(4), r.floor(5), r.floor(99)})
}

func TestTranslation(t *testing.T) {
	r := newRevisions()
	require.NoError(t, r.pair(2, 4))
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{{Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: 2}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Revision: 2, Limit: 2}}}},
	}
	got := r.request(req).(*pb.TxnRequest)
	require.EqualValues(t, 4, got.Compare[0].GetModRevision())
	require.EqualValues(t, 4, got.Success[0].GetRequestRange().Revision)
	require.EqualValues(t, 2, got.Success[0].GetRequestRange().Limit)

	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 9, RaftTerm: 8, Revision: 5},
		Kvs: []*mvccpb.KeyValue{{CreateRevision: 4, ModRevision: 4, Version: 4}}}
	want := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 2},
		Kvs: []*mvccpb.KeyValue{{CreateRevision: 2, ModRevision: 2, Version: 4}}}
	require.True(t, proto.Equal(want, r.response(resp)))
}
