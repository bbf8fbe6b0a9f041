package sim

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// request is what a client is to ask.
type request struct {
	message proto.Message
	strict  bool
	who     string   // the client, where extensions are to know it
	term    *term    // that of the user who asks; nil: the servers' own
	few     *fewUser // the user who asks, if it has few rights
	carries int64    // the lease that the client names to extensions
}

func strictly(m proto.Message) request { return request{message: m, strict: true} }

// weighted is one kind of request and how often it is made.
type weighted struct {
	weight int
	make   func(*cluster) request
}

var workload = []weighted{
	{20, (*cluster).putSingle},
	{12, (*cluster).putPair},
	{4, (*cluster).putPairIfEqual},
	{3, (*cluster).deletePair},
	{8, (*cluster).compareAndSwap},
	{5, (*cluster).mixedTxn},
	{5, (*cluster).deleteSingle},
	{2, (*cluster).deleteDir},
	{1, (*cluster).deletePairs},
	{12, (*cluster).getSingle},
	{8, (*cluster).readPair},
	{6, (*cluster).listDir},
	{6, (*cluster).listAll},
	{5, (*cluster).listPairs},
	{6, (*cluster).readOld},
	{3, (*cluster).grant},
	{2, (*cluster).revoke},
	{3, (*cluster).putPairOnLease},
	{2, (*cluster).compact},
	{4, (*cluster).keepAlive},
	{2, (*cluster).register},
	{1, (*cluster).unregister},
}

// request draws the next request.
func (c *cluster) request() request {
	if c.has.extensions && (c.keeper == nil || c.keeper.alice != nil) && c.loop.chance(2) {
		return c.extended()
	}
	return weighed(c.loop, c.has.requests, func(w weighted) int { return w.weight }).make(c)
}

// value is one that no other request writes.
func (c *cluster) value() []byte {
	v := fmt.Appendf(nil, "v%d", len(c.history))
	if c.has.large && c.loop.chance(4) {
		v = append(append(v, '-'), bytes.Repeat([]byte{'x'}, 1+c.loop.rng.IntN(2<<10))...)
	}
	return v
}

func (c *cluster) single() []byte  { return []byte(pick(c.loop, c.keys.single)) }
func (c *cluster) pair() [2]string { return pick(c.loop, c.keys.pairs) }

func (c *cluster) putSingle() request {
	r := &pb.PutRequest{Key: c.single(), Value: c.value(), PrevKv: c.loop.chance(3)}
	if ids := c.leases(); len(ids) > 0 && c.loop.chance(5) {
		r.Lease = pick(c.loop, ids)
	}
	return strictly(r)
}

func put(key string, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value, Lease: lease}}}
}

func get(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

func del(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), PrevKv: true}}}
}

func (c *cluster) putPair() request {
	p, v := c.pair(), c.value()
	return strictly(&pb.TxnRequest{Success: []*pb.RequestOp{put(p[0], v, 0), put(p[1], v, 0)}})
}

func (c *cluster) putPairOnLease() request {
	ids := c.leases()
	if len(ids) == 0 {
		return c.grant()
	}
	p, v, id := c.pair(), c.value(), pick(c.loop, ids)
	return strictly(&pb.TxnRequest{Success: []*pb.RequestOp{put(p[0], v, id), put(p[1], v, id)}})
}

// putPairIfEqual writes if the pair has a version that is about right, and
// reads it else.
func (c *cluster) putPairIfEqual() request {
	p, v := c.pair(), c.value()
	return strictly(&pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte(p[0]), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: c.recent()}},
			{Key: []byte(p[1]), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: 0}},
		},
		Success: []*pb.RequestOp{put(p[0], v, 0), put(p[1], v, 0)},
		Failure: []*pb.RequestOp{get(p[0]), get(p[1])},
	})
}

func (c *cluster) deletePair() request {
	p := c.pair()
	return strictly(&pb.TxnRequest{Success: []*pb.RequestOp{del(p[0]), del(p[1])}})
}

// recent is the revision of a recent write, which a compare may well find.
func (c *cluster) recent() int64 {
	for i := range min(len(c.history), 30) {
		if o := c.history[len(c.history)-1-i]; o.state == ok && c.loop.chance(3) {
			return o.rev
		}
	}
	return 0
}

func (c *cluster) compareAndSwap() request {
	key := c.single()
	compare := &pb.Compare{Key: key, Target: pb.Compare_MOD, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_ModRevision{ModRevision: c.recent() + 1}}
	if c.loop.chance(2) {
		compare.Result = pb.Compare_EQUAL
		compare.TargetUnion = &pb.Compare_ModRevision{ModRevision: c.recent()}
	}
	return strictly(&pb.TxnRequest{
		Compare: []*pb.Compare{compare},
		Success: []*pb.RequestOp{put(string(key), c.value(), 0), get(string(key))},
		Failure: []*pb.RequestOp{get(string(key))},
	})
}

// mixedTxn reads, deletes and writes keys that lie anywhere.
func (c *cluster) mixedTxn() request {
	a, b, d := c.single(), c.single(), c.single()
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: a, Target: pb.Compare_CREATE, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0}}},
		Success: []*pb.RequestOp{del(string(a)), get(string(d))},
		Failure: []*pb.RequestOp{get(string(d)), put(string(a), c.value(), 0)},
	}
	if string(a) != string(b) {
		r.Success = append(r.Success, put(string(b), c.value(), 0))
	}
	r.Success = append(r.Success, get(string(b)))
	return strictly(r)
}

func (c *cluster) deleteSingle() request {
	return strictly(&pb.DeleteRangeRequest{Key: c.single(), PrevKv: c.loop.chance(2)})
}

func prefix(dir string) (key, end []byte) {
	end = []byte(dir)
	end[len(end)-1]++
	return []byte(dir), end
}

func (c *cluster) deleteDir() request {
	key, end := prefix(pick(c.loop, c.keys.dirs))
	return strictly(&pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: true})
}

func (c *cluster) deletePairs() request {
	return strictly(&pb.DeleteRangeRequest{Key: []byte(pairsFrom), RangeEnd: []byte(pairsTo), PrevKv: true})
}

// either makes a read strict or serializable.
func (c *cluster) either(r *pb.RangeRequest) request {
	r.Serializable = c.loop.chance(3)
	return request{message: r, strict: !r.Serializable}
}

func (c *cluster) getSingle() request {
	return c.either(&pb.RangeRequest{Key: c.single()})
}

func (c *cluster) readPair() request {
	p := c.pair()
	return strictly(&pb.TxnRequest{Success: []*pb.RequestOp{get(p[0]), get(p[1])}})
}

func (c *cluster) listDir() request {
	key, end := prefix(pick(c.loop, c.keys.dirs))
	return c.either(&pb.RangeRequest{Key: key, RangeEnd: end})
}

func (c *cluster) listAll() request {
	r := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	switch c.loop.rng.IntN(4) {
	case 0:
		r.Limit = int64(1 + c.loop.rng.IntN(10))
	case 1:
		r.CountOnly = true
	}
	return c.either(r)
}

func (c *cluster) listPairs() request {
	return c.either(&pb.RangeRequest{Key: []byte(pairsFrom), RangeEnd: []byte(pairsTo)})
}

// readOld reads at a revision that a client was shown.
func (c *cluster) readOld() request {
	r := pick(c.loop, []func(*cluster) request{(*cluster).getSingle, (*cluster).listDir, (*cluster).listAll, (*cluster).listPairs})(c)
	back := int64(c.loop.rng.IntN(40))
	r.message.(*pb.RangeRequest).Revision = max(1, c.floor-back)
	return r
}

func (c *cluster) grant() request {
	return strictly(&pb.LeaseGrantRequest{ID: int64(1000 + len(c.history)), TTL: int64(1 + c.loop.rng.IntN(3))})
}

// leases are those granted lately, as far as the clients know, but for those of lessees, who need theirs for longer.
func (c *cluster) leases() []int64 {
	var ids []int64
	for i := range min(len(c.history), 150) {
		o := c.history[len(c.history)-1-i]
		if r, is := o.req.(*pb.LeaseGrantRequest); is && o.state == ok && r.ID < sessionLeases && o.client < firstLessee {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (c *cluster) revoke() request {
	ids := c.leases()
	if len(ids) == 0 {
		return c.grant()
	}
	return strictly(&pb.LeaseRevokeRequest{ID: pick(c.loop, ids)})
}

func (c *cluster) keepAlive() request {
	ids := c.leases()
	if len(ids) == 0 {
		return c.grant()
	}
	return request{message: &pb.LeaseKeepAliveRequest{ID: pick(c.loop, ids)}}
}

func (c *cluster) compact() request {
	return strictly(&pb.CompactionRequest{Revision: max(1, c.floor-int64(c.loop.rng.IntN(60)))})
}
