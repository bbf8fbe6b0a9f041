package differential

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func b(s string) []byte { return []byte(s) }

func put(key, value string) *pb.PutRequest { return &pb.PutRequest{Key: b(key), Value: b(value)} }

func rng(key, end string, rev int64) *pb.RangeRequest {
	return &pb.RangeRequest{Key: b(key), RangeEnd: b(end), Revision: rev}
}

func del(key, end string) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: b(key), RangeEnd: b(end), PrevKv: true}
}

func op(m proto.Message) *pb.RequestOp {
	switch r := m.(type) {
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	case *pb.TxnRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	return &pb.RequestOp{}
}

func then(ms ...proto.Message) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for _, m := range ms {
		r.Success = append(r.Success, op(m))
	}
	return r
}

func many(n int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for i := range n {
		r.Success = append(r.Success, op(put(fmt.Sprintf("/many/%d/k", i), "v")))
	}
	return r
}

// A sequence of requests on an empty store: each answer is compared, also the
// errors.
var script = []proto.Message{
	// Nothing was ever written.
	rng("k", "", 0), rng("\x00", "\x00", 0), rng("k", "", 1), rng("k", "", 2), rng("k", "", -1),
	del("k", ""), del("\x00", "\x00"), then(), then(rng("k", "", 0)), &pb.CompactionRequest{Revision: 2},
	&pb.LeaseLeasesRequest{}, &pb.LeaseTimeToLiveRequest{ID: 1}, &pb.LeaseRevokeRequest{ID: 1},

	// Single keys, and invalid requests.
	put("a", "1"), put("a", "2"), put("/d/e/f", ""), put("/d/e/g", "\x00\xff"),
	&pb.PutRequest{Key: b("a"), PrevKv: true}, &pb.PutRequest{Key: b("none"), PrevKv: true},
	&pb.PutRequest{}, &pb.RangeRequest{}, &pb.DeleteRangeRequest{}, &pb.PutRequest{Value: b("v")},
	&pb.PutRequest{Key: b("a"), Value: b("v"), IgnoreValue: true}, &pb.PutRequest{Key: b("a"), IgnoreValue: true},
	&pb.PutRequest{Key: b("gone"), IgnoreValue: true}, &pb.PutRequest{Key: b("gone"), Value: b("v"), IgnoreLease: true},
	&pb.PutRequest{Key: b("a"), Lease: 1, IgnoreLease: true}, &pb.PutRequest{Key: b("a"), Lease: 77},
	&pb.PutRequest{Key: b("a"), Lease: -1}, put("a", string(bytes.Repeat(b("x"), 1600<<10))),
	rng("a", "", 0), rng("a", "", 2), rng("a", "", 3), rng("a", "", 100), rng("a", "", -7),

	// Ranges.
	put("/b/1/x", "3"), put("/b/2/x", "1"), put("/c/1/x", "2"), put("/b/1/x", "4"),
	rng("/", "0", 0), rng("/b/", "/b0", 0), rng("/b/2", "\x00", 0), rng("b", "a", 0), rng("b", "b", 0), rng("/", "0", 9),
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), Limit: 2},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), Limit: -3},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE, Limit: 3},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), SortTarget: pb.RangeRequest_MOD},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), CountOnly: true, Limit: 1},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), KeysOnly: true, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), MinModRevision: 5, MaxModRevision: 9, MaxCreateRevision: 8},
	&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), MinCreateRevision: 7, Limit: 1},
	&pb.RangeRequest{Key: b("a"), SortOrder: 3}, &pb.RangeRequest{Key: b("a"), SortTarget: 5},
	streamed{rng("\x00", "\x00", 0)}, streamed{rng("\x00", "\x00", 8)}, streamed{rng("\x00", "\x00", 99)}, streamed{&pb.RangeRequest{}},
	streamed{&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), Limit: 2}},
	streamed{&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), SortOrder: pb.RangeRequest_DESCEND}},
	streamed{&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), MinModRevision: 2}},
	streamed{&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), KeysOnly: true}},
	streamed{&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), CountOnly: true}},

	// Deletions.
	del("none", ""), del("a", ""), del("a", ""), put("a", "again"), del("/c", "/b"), del("/b/", "/b0"), rng("\x00", "\x00", 0),
	put("/b/1/x", "new"), rng("/b/1/x", "", 12),

	// Transactions.
	many(128), many(129), then(put("k", "1"), put("k", "2")), then(put("k", "1"), del("a", "z")), then(del("a", "z"), put("k", "1")),
	then(put("k", "1"), then(put("k", "2"))), then(then(put("k", "1")), then(put("k", "2"))), then(&pb.TxnRequest{}, put("k", "1"), rng("k", "", 0)),
	then(put("/t/1/x", "1"), put("/t/2/x", "2"), rng("/t/", "/t0", 0), del("/t/1", "/t/2"), rng("/t/", "/t0", 0)),
	then(del("none", ""), rng("a", "", 0)), then(put("k", "x"), rng("k", "", 3)), then(rng("k", "", 99), put("k", "y")),
	then(put("k", "z"), &pb.PutRequest{Key: b("gone"), IgnoreValue: true}), then(put("k", "z"), &pb.PutRequest{Key: b("k2"), Lease: 77}),
	then(rng("k", "", 0), del("k", ""), rng("k", "", 0)),
	&pb.TxnRequest{Success: []*pb.RequestOp{{}}}, &pb.TxnRequest{Compare: []*pb.Compare{{}}}, then(&pb.PutRequest{}), then(&pb.RangeRequest{}),
	then(&pb.RangeRequest{Key: b("k"), SortOrder: 9}), then(then(then(then(put("deep", "1"))))),
	&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("a"), Target: pb.Compare_VALUE}}, Success: []*pb.RequestOp{op(rng("a", "", 0))}},
	&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("a"), Target: 9}}, Success: []*pb.RequestOp{op(rng("a", "", 0))}},
	&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("a"), Result: 9}}, Success: []*pb.RequestOp{op(rng("a", "", 0))}},
	&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("none"), Target: pb.Compare_VALUE, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_Value{Value: b("x")}}}, Failure: []*pb.RequestOp{op(put("else", "1"))}},
	&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("\x00"), RangeEnd: b("\x00"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}}, Success: []*pb.RequestOp{op(put("all", "1"))}},

	// Leases.
	&pb.LeaseGrantRequest{ID: 5, TTL: 800}, &pb.LeaseGrantRequest{ID: 5, TTL: 800}, &pb.LeaseGrantRequest{ID: 6, TTL: 9_000_000_001},
	&pb.LeaseGrantRequest{ID: 6, TTL: 9_000_000_000}, &pb.LeaseGrantRequest{ID: -4, TTL: 100}, &pb.LeaseLeasesRequest{},
	&pb.PutRequest{Key: b("/l/1/x"), Lease: 5}, &pb.PutRequest{Key: b("/l/2/x"), Value: b("v"), Lease: 5}, &pb.PutRequest{Key: b("/l/1/x"), IgnoreLease: true, Value: b("w")},
	&pb.LeaseTimeToLiveRequest{ID: 5, Keys: true}, &pb.LeaseTimeToLiveRequest{ID: 5}, &pb.LeaseTimeToLiveRequest{ID: 99, Keys: true},
	&pb.LeaseKeepAliveRequest{ID: 5}, &pb.LeaseKeepAliveRequest{ID: 99}, &pb.LeaseRevokeRequest{ID: 99}, &pb.LeaseRevokeRequest{ID: 5}, &pb.LeaseRevokeRequest{ID: 5},
	rng("/l", "/m", 0), &pb.LeaseRevokeRequest{ID: 6}, &pb.LeaseRevokeRequest{ID: -4}, &pb.LeaseRevokeRequest{},

	// Compaction.
	&pb.CompactionRequest{Revision: 10, Physical: true}, &pb.CompactionRequest{Revision: 10}, &pb.CompactionRequest{Revision: 4}, &pb.CompactionRequest{Revision: 1000},
	&pb.CompactionRequest{Revision: -1}, rng("a", "", 9), rng("/b/1/x", "", 10), rng("\x00", "\x00", 11), streamed{rng("a", "", 3)}, then(rng("a", "", 3), put("k", "c")),
	rng("\x00", "\x00", 0), del("\x00", "\x00"), rng("\x00", "\x00", 0), put("last", "1"),
}

func TestScript(t *testing.T) {
	for _, s := range shapes(t) {
		t.Run(s.String(), func(t *testing.T) { runScript(t, startPair(t, s), s) })
	}
}

func runScript(t *testing.T, p *pair, s shape) {
	w, err := p.openWatch(s.nodes - 1)
	require.NoError(t, err)
	require.NoError(t, p.ask(w, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: b("\x00"), RangeEnd: b("\x00"), PrevKv: true}}}))
	for i, req := range script {
		require.NoError(t, p.catchUp(i%s.nodes))
		require.NoError(t, p.do(i%s.nodes, req))
	}
	require.NoError(t, p.compareWatches())
}

// The hash that etcd's members compare among each other is the same for the same
// content, revision by revision, also where a compaction has left a tombstone.
func TestHashKVIsEtcds(t *testing.T) {
	p := startPair(t, shape{nodes: 1, parts: 1})
	script := []proto.Message{
		put("a", "1"), put("a", "2"), then(put("b", "1"), put("c", "1"), del("a", "")), del("b", "c"), put("a", "3"), del("c", ""), put("c", "4"),
	}
	for _, compact := range []int64{0, 4, 5, 7, 8} {
		if compact != 0 {
			script = append(script, &pb.CompactionRequest{Revision: compact, Physical: true})
		}
		// Below and at its compactions etcd repeats, for a while, what it found before.
		for rev := compact + 1; rev < 10; rev++ {
			script = append(script, &pb.HashKVRequest{Revision: rev})
		}
		script = append(script, &pb.DefragmentRequest{}, &pb.HashKVRequest{Revision: compact + 1}, &pb.HashKVRequest{})
	}
	for _, req := range script {
		require.NoError(t, p.do(0, req))
	}
}
