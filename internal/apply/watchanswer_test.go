package apply

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A watch that an extension was asked about misses nothing that happens behind the call, whatever it answers.
func TestWatchesBeginBehindTheirCall(t *testing.T) {
	header := &pb.ResponseHeader{Revision: 7}
	for name, at := range map[string]struct {
		from int64 // as requested
		resp *pb.RangeResponse
		want int64
	}{
		"an answer":                {0, &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{{Key: []byte("k"), Version: 1}}}, 8},
		"a key to wait for":        {3, &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{{Key: []byte("k")}}}, 8},
		"no answer":                {0, &pb.RangeResponse{Header: header}, 8},
		"no answer, opened again":  {3, &pb.RangeResponse{Header: header}, 3},
		"no extension was asked":   {0, nil, 0},
		"nor when it opened again": {3, nil, 3},
	} {
		r := &pb.WatchCreateRequest{Key: []byte("r"), StartRevision: at.from}
		WatchAnswer(r, at.resp)
		require.Equal(t, at.want, r.StartRevision, name)
	}
}
