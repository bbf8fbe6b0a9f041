package sim

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// What clients with sessions do: what others do; runs of writes to keys
// everywhere, the last of which announces the others; and reads that look for
// it first and for them then, at all levels, wherever the client is.

var sessionWorkload = []weighted{
	{20, (*cluster).putSingle},
	{8, (*cluster).putPair},
	{3, (*cluster).deletePair},
	{5, (*cluster).compareAndSwap},
	{4, (*cluster).mixedTxn},
	{4, (*cluster).deleteSingle},
	{1, (*cluster).deleteDir},
	{12, (*cluster).getSingle},
	{6, (*cluster).readPair},
	{4, (*cluster).listDir},
	{3, (*cluster).listAll},
	{4, (*cluster).listPairs},
}

var totalSessionWeight = func() (sum int) {
	for _, w := range sessionWorkload {
		sum += w.weight
	}
	return sum
}()

const dataKeys = 4

func dataKey(i int) []byte { return fmt.Appendf(nil, "/data%d/x", i) }

var readyKey = []byte("/ready/x")

// sessionRequests draws what a session asks next, all at once.
func (c *cluster) sessionRequests(s *sessionPast) []*asking {
	if s.who != "" && c.prepared == 2*len(c.names()) && c.loop.chance(2) {
		if r := c.call(s.who, 8+c.loop.rng.IntN(52)); !opensWatch(r) || len(s.watches) < mostWaiters {
			return []*asking{c.inSession(r, nil)}
		}
	}
	switch n := c.loop.rng.IntN(100); {
	case n < 15:
		return c.produce()
	case n < 35:
		return c.consume()
	case n < 50:
		return c.burst(s)
	case n < 51:
		s.closing = true
		return []*asking{{op: &op{req: &pb.LeaseRevokeRequest{ID: s.id}, strict: true}, kind: stoapb.Kind_CLOSE}}
	}
	n := c.loop.rng.IntN(totalSessionWeight)
	for _, w := range sessionWorkload {
		if n -= w.weight; n < 0 {
			return []*asking{c.inSession(w.make(c), s)}
		}
	}
	panic("unreachable")
}

// inSession makes a request one of a session.
func (c *cluster) inSession(r request, s *sessionPast) *asking {
	a := &asking{op: &op{req: r.message, strict: true, who: r.who}, kind: stoapb.Kind_TXN}
	switch q := r.message.(type) {
	case *pb.PutRequest:
		a.kind = stoapb.Kind_PUT
		if q.Lease == 0 && s != nil && c.loop.chance(6) {
			q.Lease = s.id
		}
	case *pb.DeleteRangeRequest:
		a.kind = stoapb.Kind_DELETE_RANGE
	case *pb.RangeRequest:
		q.Serializable = false
		a.kind = stoapb.Kind_RANGE
	case *pb.WatchCreateRequest:
		q.StartRevision = 0 // a session comes back for what it waits for
		a.kind = stoapb.Kind_WATCH
	}
	switch {
	case a.kind == stoapb.Kind_WATCH:
		a.level = pick(c.loop, []stoapb.Level{stoapb.Level_STRICT, stoapb.Level_CAUSAL, stoapb.Level_FAST})
	case a.who != "":
		a.level = stoapb.Level_STRICT
	case a.reads():
		a.level = pick(c.loop, []stoapb.Level{stoapb.Level_STRICT, stoapb.Level_CAUSAL, stoapb.Level_CAUSAL, stoapb.Level_FAST})
		a.strict = a.level == stoapb.Level_STRICT
		if a.level == stoapb.Level_CAUSAL && c.loop.chance(2) {
			a.token = c.floor
		}
	}
	return a
}

// produce writes data and then says that it is ready. All have one value, that of
// the first request.
func (c *cluster) produce() []*asking {
	var all []*asking
	value := c.value()
	for i := range dataKeys {
		all = append(all, c.inSession(strictly(&pb.PutRequest{Key: dataKey(i), Value: fmt.Appendf(nil, "%s.%d", value, i)}), nil))
	}
	return append(all, c.inSession(strictly(&pb.PutRequest{Key: readyKey, Value: value}), nil))
}

// burst writes a few keys of one directory, some of which may be refused.
func (c *cluster) burst(s *sessionPast) []*asking {
	var all []*asking
	dir := pick(c.loop, c.keys.dirs)
	for i := range 2 + c.loop.rng.IntN(4) {
		r := &pb.PutRequest{Key: fmt.Appendf(nil, "%sk%d", dir, c.loop.rng.IntN(3)), Value: fmt.Appendf(nil, "%s.%d", c.value(), i)}
		if ids := c.leases(); len(ids) > 0 && c.loop.chance(6) {
			r.Lease = pick(c.loop, ids)
		}
		all = append(all, c.inSession(strictly(r), s))
	}
	return all
}

// consume looks whether data are ready, and at the data.
func (c *cluster) consume() []*asking {
	all := []*asking{c.inSession(strictly(&pb.RangeRequest{Key: readyKey}), nil)}
	for range 2 {
		all = append(all, c.inSession(strictly(&pb.RangeRequest{Key: dataKey(c.loop.rng.IntN(dataKeys))}), nil))
	}
	return all
}

// causally reads one key, at the revision that the session has been told.
func (c *cluster) causally() *asking {
	return &asking{op: &op{req: &pb.RangeRequest{Key: c.single()}}, kind: stoapb.Kind_RANGE, level: stoapb.Level_CAUSAL}
}

// handedOver is a request that brings along what others have seen, and is refused or
// not; the read behind it must show that.
func (c *cluster) handedOver() []*asking {
	first := &asking{op: &op{req: &pb.RangeRequest{}}, token: c.floor}
	if c.loop.chance(2) {
		first.kind, first.req, first.level = stoapb.Kind_RANGE, &pb.RangeRequest{Key: c.single()}, stoapb.Level_FAST
	}
	return []*asking{first, c.causally()}
}
