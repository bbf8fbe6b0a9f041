package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
)

// lessee is a client who holds leases, attaches keys to them, and asks what is left of them and of others'.
// It renews late, when it has been told that less than half is left, and so the log says that, too: that is when a renewal can
// be lost with its leader. All that it draws comes from a stream of its own.
type lessee struct {
	cl   *client
	rng  *rand.Rand
	last *op
	held []holding
	past []int64 // leases that it has had
}

// mostHeld is how many leases a lessee has.
const mostHeld = 4

type holding struct {
	id, ttl int64 // in seconds
	low     bool  // less than half was left
}

// leaseStream is the second half of the seed of what runs with lessees draw for them.
const leaseStream = 0x1ea5e

// firstLessee is the number of the first client that is one.
const firstLessee = 300

// drawLessees adds them to a run's clients.
func (c *cluster) drawLessees() {
	rng := rand.New(rand.NewPCG(c.seed, leaseStream+1+uint64(c.rounds)))
	for i := range 2 + rng.IntN(3) {
		cl := newClient(c, firstLessee+i)
		cl.lessee = &lessee{cl: cl, rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}
		c.clients = append(c.clients, cl)
	}
}

func (s *lessee) chance(n int) bool { return s.rng.IntN(n) == 0 }

// next is what it asks now.
func (s *lessee) next() request {
	c := s.cl.c
	s.learn()
	for _, h := range s.held {
		if h.low && s.chance(2) {
			return request{message: &pb.LeaseKeepAliveRequest{ID: h.id}}
		}
	}
	switch {
	case len(s.held) < mostHeld && (len(s.held) == 0 || s.chance(3)): // one of a second has no checkpoints
		return strictly(&pb.LeaseGrantRequest{ID: int64(1000 + len(c.history)), TTL: []int64{2, 2, 4}[s.rng.IntN(3)]})
	case len(s.held) > 0 && s.chance(100):
		return strictly(&pb.LeaseRevokeRequest{ID: s.own()})
	case len(s.held) > 0 && s.chance(8):
		return s.attach()
	}
	if ids := s.known(); len(ids) > 0 && !s.chance(5) {
		return strictly(&pb.LeaseTimeToLiveRequest{ID: ids[s.rng.IntN(len(ids))], Keys: s.chance(2)})
	}
	return strictly(&pb.LeaseLeasesRequest{})
}

// learn looks at the answer to what it asked last.
func (s *lessee) learn() {
	o := s.last
	if o == nil {
		return
	}
	switch r := o.req.(type) {
	case *pb.LeaseGrantRequest:
		if o.state == ok {
			s.held = append(s.held, holding{id: r.ID, ttl: r.TTL})
		}
	case *pb.LeaseKeepAliveRequest:
		if errors.Is(o.err, fault.LeaseNotFound) {
			s.lose(r.ID)
		} else if o.state == ok {
			s.told(r.ID, false)
		}
	case *pb.LeaseRevokeRequest:
		s.lose(r.ID)
	case *pb.LeaseTimeToLiveRequest:
		if o.state != ok {
			break
		}
		if left := o.resp.(*pb.LeaseTimeToLiveResponse); left.TTL < 0 {
			s.lose(r.ID)
		} else {
			s.told(r.ID, 2*left.TTL < left.GrantedTTL)
		}
	}
	s.last = nil
}

func (s *lessee) lose(id int64) {
	s.held = slices.DeleteFunc(s.held, func(h holding) bool {
		if h.id == id {
			s.past = append(s.past, id)
		}
		return h.id == id
	})
}

// told notes whether less than half of a lease was left.
func (s *lessee) told(id int64, low bool) {
	for i := range s.held {
		if s.held[i].id == id {
			s.held[i].low = low
		}
	}
}

func (s *lessee) own() int64 { return s.held[s.rng.IntN(len(s.held))].id }

// attach gives one of its leases a key, or two in different partitions.
func (s *lessee) attach() request {
	c, id := s.cl.c, s.own()
	if v := c.value(); s.chance(2) {
		p := c.keys.pairs[s.rng.IntN(len(c.keys.pairs))]
		return strictly(&pb.TxnRequest{Success: []*pb.RequestOp{put(p[0], v, id), put(p[1], v, id)}})
	}
	key := c.keys.single[s.rng.IntN(len(c.keys.single))]
	return strictly(&pb.PutRequest{Key: []byte(key), Value: c.value(), Lease: id})
}

// known are its leases, and at times one that it has had, or another's.
func (s *lessee) known() (ids []int64) {
	for _, h := range s.held {
		ids = append(ids, h.id)
	}
	if s.chance(4) {
		ids = append(s.cl.c.leases(), s.past[max(0, len(s.past)-3):]...)
	}
	return ids
}

// askTimeToLive has the leader say what is left of a lease, as node does.
func (l *life) askTimeToLive(o *op, r *pb.LeaseTimeToLiveRequest, reply func(proto.Message, error)) {
	body, err := proto.Marshal(r)
	if err != nil {
		panic(err)
	}
	l.callLeader(o, methodTimeToLive, body, func(body []byte, err error) {
		resp := new(pb.LeaseTimeToLiveResponse)
		if err == nil {
			err = proto.Unmarshal(body, resp)
		}
		reply(resp, err)
	})
}

// timeToLive is the leader's part of it.
func (c *core) timeToLive(body []byte) ([]byte, error) {
	req := new(pb.LeaseTimeToLiveRequest)
	if err := proto.Unmarshal(body, req); err != nil {
		return nil, err
	}
	granted, found, err := c.machine.Lease(req.ID)
	if err != nil {
		return nil, err
	}
	resp := lease.Gone(req.ID, c.replica.Revision())
	if found {
		resp, err = c.l.leases.TimeToLive(granted, c.replica.Revision())
	}
	if err == nil && found && req.Keys {
		resp.Keys, err = c.machine.LeaseKeys(req.ID, auth.Own, (*auth.User).MayRead)
	}
	if err != nil {
		return nil, err
	}
	if !c.l.showable("what is left of a lease") {
		return nil, fault.Timeout
	}
	return proto.Marshal(resp)
}

// listLeases answers with those that are there, as node does.
func (l *life) listLeases(o *op, reply func(proto.Message, error)) {
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	var try func()
	again := func(err error) {
		switch passes := fault.Passing(err) || errors.Is(err, fault.Moved); {
		case !passes:
			reply(nil, err)
		case l.sv.c.loop.now > deadline:
			reply(nil, fault.Timeout)
		default:
			l.after(10*time.Millisecond, "list again", uint64(o.client), try)
		}
	}
	try = func() {
		c := l.core
		parts := c.machine.Placement().All()
		c.replica.ReadPoint(parts, func(err error) {
			if err != nil {
				again(err)
				return
			}
			l.after(l.between(0, 5*time.Millisecond), "list", uint64(o.client), func() {
				if c.machine.Placement().All() != parts {
					again(fault.Moved)
					return
				}
				list, err := c.machine.Granted(false)
				if err != nil {
					again(err)
					return
				}
				resp := &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: c.replica.Revision()}}
				for _, granted := range list {
					resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: granted.ID})
				}
				if !l.showable("which leases there are") {
					reply(nil, fault.Timeout)
					return
				}
				reply(resp, nil)
			})
		})
	}
	try()
}
