package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Every answer is the naive model's, at one partition without stamps and at
// several with them, for batches of whatever there is. A second machine gets the
// same entries from their bytes, with no client waiting, and must end in the same
// state (invariant 1).
func TestRandomHistoriesAgreeWithTheModel(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), rapid.MakeCheck(func(t *rapid.T) {
			h := &history{model: newModel(), leader: newRig(partitions), follower: newRig(partitions), stamped: partitions > 1, next: 2}
			h.leader.quiet, h.follower.quiet = true, true
			for range rapid.IntRange(1, 25).Draw(t, "entries") {
				h.entry(t)
				h.read(t)
			}
			require.Equal(t, dump(h.leader), dump(h.follower))
			h.checkEvents(t)
		}))
	}
}

type history struct {
	*model
	leader, follower *rig
	stamped          bool
	next             int64 // stamp
}

func (h *history) entry(t *rapid.T) {
	reqs := rapid.SliceOfN(request(h), 1, 4).Draw(t, "requests")
	e := command.Entry{Origin: 1, Seq: 2}
	if h.stamped {
		h.next += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "hole")) // stamps that other partitions took
		e.Stamp = h.next
	}
	var parts placement.Set
	for _, req := range reqs {
		e.Commands = append(e.Commands, cmd(req))
		parts |= h.leader.Parts(req)
	}
	if rapid.Bool().Draw(t, "all") {
		parts = h.leader.Placement().All() // more participants than it needs do no harm
	}
	h.next += int64(e.Stamps())

	results := make([]Result, len(reqs))
	h.leader.entry(&e, parts, func(i int, r Result) { results[i] = r })
	copied, err := command.Decode(e.AppendTo(nil))
	require.NoError(t, err)
	h.follower.entry(&copied, parts, nil)

	for i, req := range reqs {
		want, wantErr := h.run(e.StampOf(i), req)
		require.Equal(t, wantErr, faultOf(results[i].Err), "error of %v", req)
		if wantErr == nil {
			same(t, want, results[i].Response, "response to %v", req)
		}
	}
}

// read compares a read at the newest revision with the model.
func (h *history) read(t *rapid.T) {
	at, now := int64(0), h.last().rev
	if h.stamped {
		now = h.next - 1
		at = now
		if oldest := max(h.compacted, 1); rapid.Bool().Draw(t, "older") && oldest < now {
			at = rapid.Int64Range(oldest, now).Draw(t, "at")
			now = at
		}
	}
	req := rangeRequest(h).Draw(t, "read")
	want, wantErr := h.model.read(now, req)
	got, err := h.leader.Range(req, h.leader.Parts(req), at, 0)
	require.Equal(t, wantErr, faultOf(err), "error of %v at %d", req, at)
	if err == nil {
		same(t, want, got.Message(), "%v at %d", req, at)
	}
	txn := &pb.TxnRequest{Compare: rapid.SliceOfN(compareRequest(h), 0, 2).Draw(t, "compare"), Success: []*pb.RequestOp{operationOf(req)}}
	wantTxn, wantErr := h.readTxn(now, txn)
	gotTxn, err := h.leader.ReadTxn(txn, h.leader.Parts(txn), at, 0)
	require.Equal(t, wantErr, faultOf(err), "error of %v at %d", txn, at)
	if err == nil {
		same(t, wantTxn, gotTxn, "%v at %d", txn, at)
	}
}

func (h *history) readTxn(at int64, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	kvs := h.at(at).kvs
	mt := &modelTxn{model: h.model, before: at, rev: at, idle: at, old: kvs, kvs: kvs}
	resp, err := mt.request(req)
	if err != nil {
		return nil, err
	}
	return resp.(*pb.TxnResponse), nil
}

// checkEvents compares what the sink was told with the model: every revision
// whole, its sub-revisions dense over all partitions, and each partition's in
// order.
func (h *history) checkEvents(t *rapid.T) {
	subs := map[int64]map[int64]bool{}
	last := map[int]int64{}
	for _, e := range h.leader.events {
		require.Equal(t, e.rev, e.change.Main)
		require.Equal(t, e.partition, h.leader.Placement().Partition(e.change.Kv.Key()))
		require.LessOrEqual(t, last[e.partition], e.rev)
		last[e.partition] = e.rev
		if subs[e.rev] == nil {
			subs[e.rev] = map[int64]bool{}
		}
		require.False(t, subs[e.rev][e.change.Sub], "revision %d.%d twice", e.rev, e.change.Sub)
		subs[e.rev][e.change.Sub] = true
	}
	require.Len(t, subs, len(h.states)-1, "revisions that changed something")
	for _, s := range h.states[1:] {
		for sub := range int64(len(subs[s.rev])) {
			require.True(t, subs[s.rev][sub], "revision %d.%d is missing", s.rev, sub)
		}
	}
}

func faultOf(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return err
}

func same(t *rapid.T, want, got proto.Message, format string, args ...any) {
	if !proto.Equal(want, got) {
		t.Fatalf("%s:\n got %v\nwant %v", fmt.Sprintf(format, args...), got, want)
	}
}

// dump is everything that replicas must agree on.
func dump(r *rig) string {
	var b strings.Builder
	b.WriteString(r.storyState())
	for p, s := range r.Stores {
		for rev := max(1, s.Compacted()); rev <= s.Rev(); rev++ {
			f, err := s.Range([]byte{0}, []byte{0}, rev, 0)
			fmt.Fprintf(&b, "p%d at %d: %v %d\n", p, rev, err, f.Count)
			for _, kv := range f.Kvs {
				b.WriteString(formatKv(kv.Message()))
			}
		}
	}
	for _, e := range r.events {
		fmt.Fprintf(&b, "p%d %d.%d %s\n", e.partition, e.rev, e.change.Sub, formatChange(e.change))
	}
	return b.String()
}

// The generators: few keys and values, so that requests meet.

var (
	someKeys  = []string{"a", "b", "foo", "/a/x", "/b/x", "/b/y", "q/r/s", "q/r/t", "q/s/t"}
	someEnds  = []string{"", "", "", "\x00", "/b0", "c", "q/r0", "z", "/"}
	someWords = []string{"", "1", "2", "10"}
)

func key() *rapid.Generator[string]  { return rapid.SampledFrom(someKeys) }
func end() *rapid.Generator[string]  { return rapid.SampledFrom(someEnds) }
func word() *rapid.Generator[string] { return rapid.SampledFrom(someWords) }

func (h *history) revision() *rapid.Generator[int64] {
	return rapid.Int64Range(-1, h.last().rev+3)
}

func request(h *history) *rapid.Generator[proto.Message] {
	return rapid.Custom(func(t *rapid.T) proto.Message {
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			return deleteRequest().Draw(t, "delete")
		case 1:
			return &pb.CompactionRequest{Revision: h.revision().Draw(t, "compact")}
		case 2:
			return &pb.LeaseGrantRequest{ID: rapid.Int64Range(1, 3).Draw(t, "id"), TTL: 10}
		case 3:
			return &pb.LeaseRevokeRequest{ID: rapid.Int64Range(1, 3).Draw(t, "id")}
		case 4, 5, 6, 7, 8:
			return txnRequest(h, 2).Draw(t, "txn")
		}
		return putRequest().Draw(t, "put")
	})
}

func putRequest() *rapid.Generator[*pb.PutRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.PutRequest {
		r := &pb.PutRequest{
			Key: []byte(key().Draw(t, "key")), PrevKv: rapid.Bool().Draw(t, "prev"),
			IgnoreValue: rapid.IntRange(0, 5).Draw(t, "ignore value") == 0,
			IgnoreLease: rapid.IntRange(0, 5).Draw(t, "ignore lease") == 0,
		}
		r.Value = []byte(word().Draw(t, "value"))
		if rapid.IntRange(0, 3).Draw(t, "leased") == 0 {
			r.Lease = rapid.Int64Range(1, 3).Draw(t, "lease")
		}
		return r
	})
}

func deleteRequest() *rapid.Generator[*pb.DeleteRangeRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.DeleteRangeRequest {
		return &pb.DeleteRangeRequest{
			Key: []byte(key().Draw(t, "key")), RangeEnd: []byte(end().Draw(t, "end")), PrevKv: rapid.Bool().Draw(t, "prev"),
		}
	})
}

func rangeRequest(h *history) *rapid.Generator[*pb.RangeRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.RangeRequest {
		r := &pb.RangeRequest{Key: []byte(key().Draw(t, "key")), RangeEnd: []byte(end().Draw(t, "end"))}
		if rapid.Bool().Draw(t, "plain") {
			return r
		}
		r.Limit = rapid.Int64Range(-1, 3).Draw(t, "limit")
		r.KeysOnly = rapid.Bool().Draw(t, "keys only")
		r.CountOnly = rapid.IntRange(0, 4).Draw(t, "count only") == 0
		r.SortTarget = pb.RangeRequest_SortTarget(rapid.IntRange(0, 4).Draw(t, "target"))
		r.SortOrder = pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(t, "order"))
		for _, field := range []*int64{&r.Revision, &r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
			if rapid.IntRange(0, 3).Draw(t, "set") == 0 {
				*field = h.revision().Draw(t, "revision")
			}
		}
		return r
	})
}

func compareRequest(h *history) *rapid.Generator[*pb.Compare] {
	return rapid.Custom(func(t *rapid.T) *pb.Compare {
		c := &pb.Compare{
			Key: []byte(key().Draw(t, "key")), RangeEnd: []byte(end().Draw(t, "end")),
			Result: pb.Compare_CompareResult(rapid.IntRange(0, 3).Draw(t, "result")),
			Target: pb.Compare_CompareTarget(rapid.IntRange(0, 4).Draw(t, "target")),
		}
		n := h.revision().Draw(t, "number")
		switch c.Target {
		case pb.Compare_VALUE:
			c.TargetUnion = &pb.Compare_Value{Value: []byte(word().Draw(t, "value"))}
		case pb.Compare_CREATE:
			c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: n}
		case pb.Compare_MOD:
			c.TargetUnion = &pb.Compare_ModRevision{ModRevision: n}
		case pb.Compare_VERSION:
			c.TargetUnion = &pb.Compare_Version{Version: n % 3}
		case pb.Compare_LEASE:
			c.TargetUnion = &pb.Compare_Lease{Lease: n % 3}
		}
		return c
	})
}

func txnRequest(h *history, depth int) *rapid.Generator[*pb.TxnRequest] {
	return rapid.Custom(func(t *rapid.T) *pb.TxnRequest {
		op := rapid.Custom(func(t *rapid.T) *pb.RequestOp {
			switch n := rapid.IntRange(0, 6).Draw(t, "op"); {
			case n < 2:
				return operationOf(rangeRequest(h).Draw(t, "range"))
			case n < 3:
				return operationOf(deleteRequest().Draw(t, "delete"))
			case n < 4 && depth > 0:
				return operationOf(txnRequest(h, depth-1).Draw(t, "txn"))
			}
			return operationOf(putRequest().Draw(t, "put"))
		})
		return &pb.TxnRequest{
			Compare: rapid.SliceOfN(compareRequest(h), 0, 2).Draw(t, "compare"),
			Success: rapid.SliceOfN(op, 0, 3).Draw(t, "success"),
			Failure: rapid.SliceOfN(op, 0, 3).Draw(t, "failure"),
		}
	})
}
