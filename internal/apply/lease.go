package apply

import (
	"bytes"
	"encoding/binary"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/protofield"
)

// LeaseKeys are the keys of a lease, in their order, as they are at one moment in all partitions, for a user who may do to each of
// them then what is asked. The user is a credential, or 0.
func (m *Machine) LeaseKeys(id int64, user uint64, may func(u *auth.User, key, end []byte) error) ([][]byte, error) {
	parts := m.Placement().All()
	m.rlock(parts)
	defer m.runlock(parts)
	if err := m.shows(true); err != nil {
		return nil, err
	}
	u, err := m.Auth().Authorize(user) // under the locks: the rights are those beside these keys
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for p := range parts.Each() {
		keys = append(keys, m.Stores[p].LeaseKeys(id)...)
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		if err := may(u, key, nil); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Renewer is who renews a lease: a credential, or 0, and whether as the lease of a session.
type Renewer struct {
	User    uint64
	Session bool
}

// AppendTo appends what servers tell each other of one.
func (r Renewer) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, r.User)
	if r.Session {
		b = append(b, 1)
	}
	return b
}

// ReadRenewer is of what AppendTo has appended; of nothing it is nobody.
func ReadRenewer(b []byte) Renewer {
	user, n := binary.Uvarint(b)
	return Renewer{user, n > 0 && len(b) > n}
}

// MayRenew refuses a user who may not write all keys of the lease. That of a session is its owner's, whatever keys it
// has, and stays so when it ends in several steps, though nobody renews it any more; as that of a session it isn't even root's.
func (m *Machine) MayRenew(id int64, who Renewer) error {
	u, err := m.Auth().Authorize(who.User)
	if err != nil || u == nil {
		return err
	}
	l, ok := m.Leases.Get(id)
	foreign := ok && l.Owner != u.ID
	switch {
	case foreign && who.Session:
		return fault.SessionGone
	case u.IsRoot(), !foreign && l.Remaining == lease.Ending:
		return nil
	case m.hasSession(id):
		if foreign {
			return fault.PermissionDenied
		}
		return nil
	}
	_, err = m.LeaseKeys(id, who.User, (*auth.User).MayWrite)
	return err
}

// Lease is one lease, if it is there.
func (m *Machine) Lease(id int64) (l lease.Lease, found bool, err error) {
	m.rlock(placement.Of(0))
	defer m.runlock(placement.Of(0))
	if err := m.shows(true); err != nil {
		return lease.Lease{}, false, err
	}
	l, found = m.Leases.Get(id)
	return l, found, nil
}

func (x *execution) leaseGrant(req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	l := lease.Lease{ID: req.GetID(), TTL: req.GetTTL()}
	if x.user != nil {
		l.Owner = x.user.ID
	}
	if x.m.Level() >= levelOfMeantLeases {
		l.Number = x.leaseNumber()
	}
	if err := x.m.Leases.Grant(l); err != nil {
		return nil, err
	}
	if o := x.m.Observer; o != nil {
		o.LeaseGranted(l)
	}
	return &pb.LeaseGrantResponse{Header: x.header(false), ID: l.ID, TTL: l.TTL}, nil
}

// leaseNumber is made of the name of a grant's proposal. What concerns all partitions has an entry of its own. Its place in a log
// wouldn't do: a server that is made a cluster of its own gives another one to what its log of a partition lacks.
func (x *execution) leaseNumber() uint64 { return numbers(x.entry.Origin, x.entry.Seq) }

// When what concerns a lease is executed, that may have ended, and another have been granted with its ID. Fields of ours say which
// is meant: in a LeaseRevokeRequest or a LeaseCheckpoint the one with a number, in further steps of a revocation one
// whose end has begun. Without them it is whichever has the ID.
const (
	fieldFurther protowire.Number = 1000
	fieldNumber  protowire.Number = 1001
)

func setField(m proto.Message, field protowire.Number, v uint64) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v))
}

// Further makes a request a further step of a revocation.
func Further(r *pb.LeaseRevokeRequest) { setField(r, fieldFurther, 1) }

// Revocation is that of a lease that has run out.
func Revocation(over lease.Over) *pb.LeaseRevokeRequest {
	r := &pb.LeaseRevokeRequest{ID: over.ID}
	setField(r, fieldNumber, over.Number)
	return r
}

// Checkpoints are those of leases.
func Checkpoints(list []lease.Checkpoint) *pb.LeaseCheckpointRequest {
	r := &pb.LeaseCheckpointRequest{}
	for _, c := range list {
		to := &pb.LeaseCheckpoint{ID: c.ID, Remaining_TTL: c.Remaining}
		setField(to, fieldNumber, c.Number)
		r.Checkpoints = append(r.Checkpoints, to)
	}
	return r
}

// meant reports whether there is a lease with the ID, and a request or a checkpoint is for that.
func (x *execution) meant(id int64, m proto.Message) bool {
	l, ok := x.m.Leases.Get(id)
	if !ok || x.m.Level() < levelOfMeantLeases {
		return ok
	}
	fields := m.ProtoReflect().GetUnknown()
	_, further := protofield.Find(fields, fieldFurther, protowire.VarintType)
	n, numbered := protofield.Find(fields, fieldNumber, protowire.VarintType)
	return (!further || l.Remaining == lease.Ending) && (!numbered || l.Is(n.Varint))
}

// leaseRevoke deletes the keys of a lease, of all partitions at one revision and in key
// order. The lease is removed once it is known that this isn't too much work; see finishLease.
func (x *execution) leaseRevoke(req *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	id := req.GetID()
	if !x.meant(id, req) {
		return nil, fault.LeaseNotFound
	}
	if err := x.mayDispose(id); err != nil {
		return nil, err
	}
	var keys [][]byte
	for p := range x.parts.Each() {
		keys = append(keys, x.m.Stores[p].LeaseKeys(id)...)
	}
	slices.SortFunc(keys, bytes.Compare)
	x.ending, x.leased, x.ended = id, keys, x.withEvents(keys[:withRemovals(keys)])
	x.expire(keys[:x.ended])
	return &pb.LeaseRevokeResponse{Header: x.header(true)}, nil
}

// withRemovals is how many of a lease's keys, from the first, a command may delete: not more
// than maxRemovals of them are sources of extensions.
func withRemovals(keys [][]byte) int {
	sources := 0
	for i, key := range keys {
		if role, _, _ := extension.Parse(key); role == extension.Source {
			if sources++; sources > maxRemovals {
				return i
			}
		}
	}
	return len(keys)
}

// withEvents is how many of a lease's keys, from the first, are tried at once: the handlers of
// more would certainly or probably be too much work, and to find that out is work, too.
func (x *execution) withEvents(keys [][]byte) int {
	reg := x.m.Extensions()
	if x.m.Level() < levelOfSmallSteps || !reg.HasEvents() {
		return len(keys)
	}
	left := x.eventSteps(len(keys)) / 4 // handlers do more than nothing
	for i, key := range keys {
		if left -= int64(len(reg.Events(extension.Expired, key))) * runSteps; left < 0 {
			return max(i, 1)
		}
	}
	return len(keys)
}

// endSteps are the steps of handlers that a step of a lease's end may take, whatever the limits
// are: nobody waits for it.
const endSteps = 125_000

// eventSteps is how many steps the handlers of the command may take, if it ends a lease with so
// many of its keys.
func (x *execution) eventSteps(keys int) int64 {
	limit := x.m.Extensions().Limits.EventSteps
	if keys > 1 && x.m.Level() >= levelOfSmallEnds {
		return min(limit, endSteps)
	}
	return limit
}

func (x *execution) expire(keys [][]byte) {
	x.expiring = len(keys)
	for _, key := range keys {
		x.delete(key)
	}
	x.expired = x.sub
}

// finishLease ends the lease whose keys the command has deleted. Its end can't be refused;
// if the events of all its keys are too much work, it is done in several steps: this one
// is rolled back and deletes half of the keys that it had processed, or fewer if these are
// too much work as well; the lease is over, and is to be revoked again. If the events of a
// single key are too much by themselves, those not yet delivered are dropped.
func (x *execution) finishLease(r Result, err error) Result {
	id, n := x.ending, x.ended
	for part := 2; err != nil && n > 1; part *= 8 { // not halves: each attempt is work, too
		n = max(1, min(x.told, n)/part)
		x.undo(err)
		x.expire(x.leased[:n])
		err = x.consequences()
	}
	x.dropSession(id)
	o := x.m.Observer
	if n < len(x.leased) {
		x.m.Leases.End(id)
		if o != nil {
			o.LeaseEnding(id)
		}
		return Result{Err: fault.LeaseEnding, Rev: x.current()}
	}
	if x.m.Leases.Revoke(id) == nil && o != nil {
		o.LeaseRevoked(id)
	}
	return r
}

func (x *execution) leaseCheckpoint(req *pb.LeaseCheckpointRequest) (*pb.LeaseCheckpointResponse, error) {
	for _, c := range req.GetCheckpoints() {
		if x.meant(c.GetID(), c) {
			x.m.Leases.Checkpoint(c.GetID(), c.GetRemaining_TTL())
		}
	}
	return &pb.LeaseCheckpointResponse{Header: x.header(false)}, nil
}
