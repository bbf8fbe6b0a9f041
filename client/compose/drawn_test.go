package compose

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestDrawnRanges sends ranges to their clusters, and looks which keys are in them there: those that are in the range
// here, but for reserved ones.
func TestDrawnRanges(t *testing.T) {
	r, err := newRouting([]string{"ap", "eu", "ff", "us"}, []Route{
		{Prefix: "/us/", Cluster: "us", Strip: true}, {Prefix: "/us", Cluster: "ap", Strip: true}, {Prefix: "/", Cluster: "eu"},
		{Prefix: "\xff", Cluster: "ff", Strip: true},
	}, "")
	require.NoError(t, err)
	pieces := []string{"", "\x00", "/", "u", "us", "us/", "/us/", "/us", "/stoa", "/stoa/", "/stoa0", "a", "\xff", "0", "/us0", "/ut"}
	text := rapid.Custom(func(t *rapid.T) (s string) {
		for range rapid.IntRange(0, 3).Draw(t, "pieces") {
			s += rapid.SampledFrom(pieces).Draw(t, "piece")
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		q := &pb.RangeRequest{Key: []byte(text.Draw(t, "key")), RangeEnd: []byte(text.Draw(t, "end"))}
		asked := keyRange{q.Key, q.RangeEnd}
		if len(q.Key) == 0 {
			return
		}
		p, err := r.place(q)
		if err != nil {
			return
		}
		txn, ok := p.message.(*pb.TxnRequest)
		if !ok {
			txn = &pb.TxnRequest{Success: []*pb.RequestOp{opOf(p.message)}}
		}
		in := func(key string) bool {
			return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
				return keyRange{op.GetRequestRange().Key, op.GetRequestRange().RangeEnd}.has(key)
			})
		}
		for range 20 {
			key := text.Draw(t, "present")
			at := r.find(key)
			if key == "" || at == nil || at.keyThere(key) == "" {
				continue
			}
			there := at.keyThere(key)
			require.Equalf(t, asked.has(key) && !isReserved(there), at.cluster == p.cluster && in(there), "%q, as %v", key, p.message)
		}
	})
}

func (r keyRange) has(key string) bool {
	if len(r.end) == 0 {
		return key == string(r.key)
	}
	from, to := bounds(r.key, r.end)
	return key >= from && (to == "" || key < to)
}
