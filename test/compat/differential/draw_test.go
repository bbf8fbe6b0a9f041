package differential

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// The key space of the drawn workloads: few keys, so that operations meet; several
// directories, so that they lie in several partitions; and flat keys, each of which
// is its own placement prefix.
var keySpace = func() []string {
	keys := []string{"flat", "also flat", "/top"}
	for _, dir := range []string{"/a/x/", "/a/y/", "/b/", "c/d/", "/registry/pods/default/"} {
		for i := range 3 {
			keys = append(keys, fmt.Sprint(dir, i))
		}
	}
	return keys
}()

var ends = []string{"", "\x00", "/", "/a/y", "/b0", "/registry/pods/default0", "d", "zzz"}

// leaseIDs are those that a sequence may grant.
var leaseIDs = []int64{11, 12, 13}

// drawing draws requests in the state that a pair is in.
type drawing struct {
	*rapid.T
	current int64 // the reference's revision
	dense   bool  // the server under test has no gaps
	forward bool  // no range ends before it begins
}

// step is one step of a sequence: a request, a watch, or, if it is neither, a look at
// what the watches have told.
type step struct {
	server  int
	request proto.Message
	watch   *pb.WatchRequest
	another bool // the watch begins a stream of its own
}

func (s step) GoString() string {
	return fmt.Sprintf("server %d: %T{%v} %v", s.server, s.request, s.request, s.watch)
}

func (d *drawing) step(servers, number int) step {
	st := step{server: rapid.IntRange(0, servers-1).Draw(d.T, "server")}
	switch kind := rapid.IntRange(0, 99).Draw(d.T, "kind"); {
	case kind < 25:
		st.request = d.get()
	case kind < 32:
		get := d.get()
		if get.SortOrder == pb.RangeRequest_NONE {
			// etcd sorts each chunk by itself then, so that the order tells the chunks.
			get.SortTarget = pb.RangeRequest_KEY
		}
		st.request = streamed{get}
	case kind < 55:
		st.request = d.put()
	case kind < 65:
		st.request = d.del()
	case kind < 83:
		st.request = d.txn(2)
	case kind < 85:
		back := int64(rapid.IntRange(-2, 20).Draw(d.T, "back"))
		st.request = &pb.CompactionRequest{Revision: max(1, d.current-back), Physical: d.flip(2, "physical")}
	case kind < 93:
		st.request = d.leaseRequest()
	case kind < 98:
		st.watch, st.another = d.watch(number), d.flip(4, "another stream")
	}
	return st
}

func (d *drawing) flip(oneIn int, what string) bool {
	return rapid.IntRange(0, oneIn-1).Draw(d.T, what) == oneIn-1
}

func (d *drawing) key() []byte {
	if d.flip(60, "no key") {
		return nil
	}
	return []byte(rapid.SampledFrom(keySpace).Draw(d.T, "key"))
}

// keyRange draws a key and an end, which may lie before it.
func (d *drawing) keyRange() (key, end []byte) {
	key, end = d.anyRange()
	if d.forward && len(end) > 0 && !bytes.Equal(end, []byte{0}) && bytes.Compare(end, key) <= 0 {
		return key, nil
	}
	return key, end
}

func (d *drawing) anyRange() (key, end []byte) {
	key = d.key()
	switch rapid.IntRange(0, 5).Draw(d.T, "kind of range") {
	case 0, 1:
		return key, nil
	case 2:
		return key, []byte(rapid.SampledFrom(ends).Draw(d.T, "end"))
	case 3:
		return key, []byte(rapid.SampledFrom(keySpace).Draw(d.T, "end"))
	case 4: // a directory
		if i := bytes.LastIndexByte(key, '/'); i >= 0 {
			key = key[:i+1]
			return key, append(bytes.Clone(key[:i]), '/'+1)
		}
		return key, append(bytes.Clone(key), 0)
	default:
		return []byte{0}, []byte{0}
	}
}

// revision draws one near the current one, 0 mostly, the future sometimes.
func (d *drawing) revision() int64 {
	if !d.flip(3, "at a revision") {
		return 0
	}
	return max(-1, d.current-int64(rapid.IntRange(-2, 30).Draw(d.T, "revisions back")))
}

func (d *drawing) value() []byte {
	return []byte(rapid.SampledFrom([]string{"", "1", "2", "3", "\x00\xff", "a longer value than the others are"}).Draw(d.T, "value"))
}

func (d *drawing) leaseID() int64 {
	return rapid.SampledFrom([]int64{11, 12, 13, 99}).Draw(d.T, "lease")
}

func (d *drawing) get() *pb.RangeRequest {
	r := &pb.RangeRequest{}
	r.Key, r.RangeEnd = d.keyRange()
	r.Revision = d.revision()
	if d.flip(3, "limited") {
		r.Limit = int64(rapid.IntRange(1, 6).Draw(d.T, "limit"))
	}
	if d.flip(3, "sorted") {
		r.SortOrder = pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(d.T, "order"))
		r.SortTarget = pb.RangeRequest_SortTarget(rapid.IntRange(0, 4).Draw(d.T, "target"))
		if d.flip(20, "badly") {
			r.SortOrder = 7
		}
	}
	r.KeysOnly = d.flip(6, "keys only")
	r.CountOnly = d.flip(8, "count only")
	if d.flip(8, "filtered") {
		r.MinModRevision = max(0, d.revision())
		r.MaxModRevision = max(0, d.revision())
		r.MinCreateRevision = max(0, d.revision())
		r.MaxCreateRevision = max(0, d.revision())
	}
	return r
}

func (d *drawing) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), Value: d.value(), PrevKv: d.flip(4, "with previous")}
	if d.flip(4, "leased") {
		r.Lease = d.leaseID()
	}
	if d.flip(8, "value kept") {
		r.IgnoreValue = true
		if !d.flip(4, "and given") {
			r.Value = nil
		}
	}
	if d.flip(8, "lease kept") {
		r.IgnoreLease = true
		if !d.flip(4, "and given") {
			r.Lease = 0
		}
	}
	return r
}

func (d *drawing) del() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{PrevKv: d.flip(3, "with previous")}
	r.Key, r.RangeEnd = d.keyRange()
	if bytes.Equal(r.Key, []byte{0}) && !d.flip(4, "really everything") {
		r.Key, r.RangeEnd = d.key(), nil
	}
	return r
}

func (d *drawing) compare() *pb.Compare {
	c := &pb.Compare{
		Result: pb.Compare_CompareResult(rapid.IntRange(0, 3).Draw(d.T, "result")),
		Target: pb.Compare_CompareTarget(rapid.IntRange(0, 4).Draw(d.T, "target")),
	}
	c.Key, c.RangeEnd = d.keyRange()
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: int64(rapid.IntRange(0, 3).Draw(d.T, "version"))}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: max(0, d.revision())}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: max(0, d.revision())}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: d.value()}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: rapid.SampledFrom([]int64{0, 11, 12}).Draw(d.T, "lease")}
	}
	if d.flip(30, "without its target") {
		c.TargetUnion = nil
	}
	return c
}

func (d *drawing) txn(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range rapid.IntRange(0, 2).Draw(d.T, "compares") {
		r.Compare = append(r.Compare, d.compare())
	}
	for range rapid.IntRange(0, 4).Draw(d.T, "then") {
		r.Success = append(r.Success, d.op(depth))
	}
	for range rapid.IntRange(0, 3).Draw(d.T, "else") {
		r.Failure = append(r.Failure, d.op(depth))
	}
	return r
}

func (d *drawing) op(depth int) *pb.RequestOp {
	kind := rapid.IntRange(0, 6).Draw(d.T, "operation")
	switch {
	case kind <= 2:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.put()}}
	case kind <= 4:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.get()}}
	case kind == 5:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d.del()}}
	case depth > 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: d.txn(depth - 1)}}
	}
	if d.flip(10, "empty") {
		return &pb.RequestOp{}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.put()}}
}

func (d *drawing) leaseRequest() proto.Message {
	switch rapid.IntRange(0, 5).Draw(d.T, "lease request") {
	case 0, 1:
		ttl := rapid.SampledFrom([]int64{500, 600, 9_000_000_000, 9_000_000_001}).Draw(d.T, "ttl")
		return &pb.LeaseGrantRequest{ID: rapid.SampledFrom(leaseIDs).Draw(d.T, "lease"), TTL: ttl}
	case 2:
		return &pb.LeaseRevokeRequest{ID: d.leaseID()}
	case 3:
		return &pb.LeaseTimeToLiveRequest{ID: d.leaseID(), Keys: d.flip(2, "with keys")}
	case 4:
		return &pb.LeaseKeepAliveRequest{ID: d.leaseID()}
	default:
		return &pb.LeaseLeasesRequest{}
	}
}

func (d *drawing) watch(number int) *pb.WatchRequest {
	r := &pb.WatchCreateRequest{PrevKv: d.flip(2, "with previous"), StartRevision: d.revision()}
	if !d.dense { // behind the next write lie gaps, and it isn't known how many
		r.StartRevision = min(r.StartRevision, d.current+1)
	}
	r.Key, r.RangeEnd = d.keyRange()
	r.Fragment = d.flip(4, "fragments")
	if d.flip(4, "filtered") {
		r.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_FilterType(rapid.IntRange(0, 1).Draw(d.T, "filter"))}
	}
	if d.flip(4, "own id") { // no id twice: when a compacted one is free again is a matter of time
		r.WatchId = int64(100 + number)
	}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}
