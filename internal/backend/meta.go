package backend

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/protofield"
	"github.com/stoa-kv/stoa/internal/version"
)

// initialise creates a new file's buckets and writes its identity.
func initialise(w writer, id Identity) error {
	for _, name := range allBuckets {
		if err := w.create(name); err != nil {
			return fmt.Errorf("create bucket %q: %w", name, err)
		}
	}
	if err := w.put(bucketMeta, metaVersion, []byte(StorageVersion)); err != nil {
		return err
	}
	if err := w.put(bucketStoa, stoaFormat, be64(uint64(version.Oldest))); err != nil {
		return err
	}
	if err := w.put(bucketStoa, stoaCluster, be64(id.Cluster)); err != nil {
		return err
	}
	if err := w.put(bucketStoa, stoaPartitions, be64(uint64(id.Partitions))); err != nil {
		return err
	}
	return w.put(bucketStoa, stoaServer, be64(id.Server))
}

// readIdentity fails if the file is not stoa's, or of a level that this
// program doesn't know.
func readIdentity(r reader) (Identity, error) {
	format := r.get(bucketStoa, stoaFormat)
	if format == nil {
		return Identity{}, fmt.Errorf("%w: it was not written by stoa", ErrForeign)
	}
	if err := version.CheckData(version.Level(readBE64(format))); err != nil {
		return Identity{}, err
	}
	return Identity{
		Cluster:    readBE64(r.get(bucketStoa, stoaCluster)),
		Server:     readBE64(r.get(bucketStoa, stoaServer)),
		Partitions: int(readBE64(r.get(bucketStoa, stoaPartitions))),
	}, nil
}

// accept compares a file's identity with the expected one.
func accept(have, want Identity) error {
	switch {
	case want == Identity{}:
		return nil
	case have.Cluster != want.Cluster:
		return fmt.Errorf("%w: cluster %x, this server is of %x", ErrForeign, have.Cluster, want.Cluster)
	case want.Partitions != 0 && have.Partitions != want.Partitions:
		return fmt.Errorf("%w: %d partitions, this server has %d", ErrForeign, have.Partitions, want.Partitions)
	}
	return nil
}

// readPosition returns the zero Position for a partition never flushed.
func readPosition(r reader, partition int) (Position, error) {
	v := r.get(bucketStoa, stoaPosition(partition))
	if v == nil {
		return Position{}, nil
	}
	if len(v) != 24 {
		return Position{}, fmt.Errorf("%w: position of partition %d has %d bytes", ErrDamaged, partition, len(v))
	}
	return Position{
		Index: binary.BigEndian.Uint64(v),
		Term:  binary.BigEndian.Uint64(v[8:]),
		Rev:   int64(binary.BigEndian.Uint64(v[16:])),
	}, nil
}

func writePosition(w writer, partition int, p Position) error {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 24), p.Index)
	v = binary.BigEndian.AppendUint64(v, p.Term)
	v = binary.BigEndian.AppendUint64(v, uint64(p.Rev))
	return w.put(bucketStoa, stoaPosition(partition), v)
}

// readLog returns the zero place for the one of another server's log: in a file that has
// come as a snapshot. (A release before 0.4 may have taken it in and then written to it.)
func readLog(r reader, server uint64) (LogPlace, error) {
	v := r.get(bucketStoa, stoaLog)
	if v == nil {
		return LogPlace{}, nil
	}
	if len(v) != 24 {
		return LogPlace{}, fmt.Errorf("%w: the place in the log has %d bytes", ErrDamaged, len(v))
	}
	if binary.BigEndian.Uint64(v) != server {
		return LogPlace{}, nil
	}
	return LogPlace{Segment: binary.BigEndian.Uint64(v[8:]), Offset: int64(binary.BigEndian.Uint64(v[16:]))}, nil
}

func writeLog(w writer, server uint64, at LogPlace) error {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 24), server)
	v = binary.BigEndian.AppendUint64(v, at.Segment)
	return w.put(bucketStoa, stoaLog, binary.BigEndian.AppendUint64(v, uint64(at.Offset)))
}

// readPositions reads one position a partition.
func readPositions(r reader, partitions int) ([]Position, error) {
	ps := make([]Position, partitions)
	for i := range ps {
		p, err := readPosition(r, i)
		if err != nil {
			return nil, err
		}
		ps[i] = p
	}
	return ps, nil
}

// readCompaction returns -1 if there was no compaction.
func readCompaction(r reader, key []byte) int64 {
	rev, _, ok := parseRev(r.get(bucketMeta, key))
	if !ok {
		return -1
	}
	return rev.Main
}

// readCompacted returns the last compaction that was asked for.
func readCompacted(r reader) int64 {
	return max(readCompaction(r, metaScheduled), readCompaction(r, metaFinished))
}

func readMeta(r reader, id Identity) (m Meta, err error) {
	m = Meta{
		Identity:  id,
		Level:     version.Level(readBE64(r.get(bucketStoa, stoaFormat))),
		Finished:  readCompaction(r, metaFinished),
		Compacted: readCompacted(r),
		Blobs:     map[string][]byte{},
	}
	if m.Positions, err = readPositions(r, id.Partitions); err != nil {
		return m, err
	}
	if m.Log, err = readLog(r, id.Server); err != nil {
		return m, err
	}
	r.ascend(bucketLease, nil, func(_, v []byte) bool {
		var l Lease
		if l, err = decodeLease(v); err == nil {
			m.Leases = append(m.Leases, l)
		}
		return err == nil
	})
	if err != nil {
		return m, err
	}
	r.ascend(bucketAlarm, nil, func(k, _ []byte) bool {
		a := &etcdserverpb.AlarmMember{}
		if err = proto.Unmarshal(k, a); err == nil {
			m.Alarms = append(m.Alarms, a)
		}
		return err == nil
	})
	if err != nil {
		return m, fmt.Errorf("%w: alarm: %w", ErrDamaged, err)
	}
	r.ascend(bucketMembers, nil, func(_, v []byte) bool {
		var member Member
		if err = json.Unmarshal(v, &member); err == nil {
			m.Members = append(m.Members, member)
		}
		return err == nil
	})
	if err != nil {
		return m, fmt.Errorf("%w: member: %w", ErrDamaged, err)
	}
	r.ascend(bucketStoa, stoaBlob, func(k, v []byte) bool {
		name, ok := bytes.CutPrefix(k, stoaBlob)
		if ok {
			m.Blobs[string(name)] = bytes.Clone(v)
		}
		return ok
	})
	m.Auth = readAuth(r)
	return m, nil
}

// writeSystem writes the state that belongs to no partition.
func writeSystem(w writer, s *System) error {
	for _, l := range s.Leases {
		if err := w.put(bucketLease, be64(uint64(l.ID)), encodeLease(l)); err != nil {
			return fmt.Errorf("lease %x: %w", l.ID, err)
		}
	}
	for _, id := range s.LeasesRevoked {
		if err := w.remove(bucketLease, be64(uint64(id))); err != nil {
			return fmt.Errorf("lease %x: %w", id, err)
		}
	}
	for i, alarms := range [][]*etcdserverpb.AlarmMember{s.AlarmsOff, s.AlarmsOn} {
		for _, a := range alarms {
			key, err := proto.Marshal(a)
			if err == nil && i == 0 {
				err = w.remove(bucketAlarm, key)
			} else if err == nil {
				err = w.put(bucketAlarm, key, nil)
			}
			if err != nil {
				return fmt.Errorf("alarm %v: %w", a, err)
			}
		}
	}
	if s.Level != 0 {
		if err := w.put(bucketStoa, stoaFormat, be64(uint64(s.Level))); err != nil {
			return err
		}
	}
	if s.Members != nil {
		if err := writeMembers(w, s.Members, s.MembersRemoved); err != nil {
			return err
		}
	}
	if s.Auth != nil {
		if err := writeAuth(w, s.Auth); err != nil {
			return err
		}
	}
	for name, v := range s.Blobs {
		key := append(bytes.Clone(stoaBlob), name...)
		err := error(nil)
		if v == nil {
			err = w.remove(bucketStoa, key)
		} else {
			err = w.put(bucketStoa, key, v)
		}
		if err != nil {
			return fmt.Errorf("value %q: %w", name, err)
		}
	}
	return nil
}

// writeMembers replaces the list, and the Raft configuration that etcd would
// derive from it.
func writeMembers(w writer, members []Member, removed []uint64) error {
	if err := empty(w, bucketMembers); err != nil {
		return err
	}
	conf := struct {
		Voters   []uint64 `json:"voters,omitempty"`
		Learners []uint64 `json:"learners,omitempty"`
	}{}
	for _, m := range members {
		v, err := json.Marshal(m)
		if err == nil {
			err = w.put(bucketMembers, []byte(strconv.FormatUint(m.ID, 16)), v)
		}
		if err != nil {
			return fmt.Errorf("member %x: %w", m.ID, err)
		}
		if m.IsLearner {
			conf.Learners = append(conf.Learners, m.ID)
		} else {
			conf.Voters = append(conf.Voters, m.ID)
		}
	}
	for _, id := range removed {
		if err := w.put(bucketRemoved, []byte(strconv.FormatUint(id, 16)), []byte("removed")); err != nil {
			return fmt.Errorf("removed member %x: %w", id, err)
		}
	}
	v, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return w.put(bucketMeta, metaConfState, v)
}

// The fields of a stored lease. The first three are those of etcd's leasepb.Lease, whose package in etcd's server isn't
// worth the dependency; the others are ours, and etcd passes over them.
const (
	leaseID        protowire.Number = 1
	leaseTTL       protowire.Number = 2
	leaseRemaining protowire.Number = 3
	leaseOwner     protowire.Number = 1000
	leaseNumber    protowire.Number = 1001
)

func encodeLease(l Lease) (b []byte) {
	add := func(field protowire.Number, v uint64) {
		if v != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
		}
	}
	add(leaseID, uint64(l.ID))
	add(leaseTTL, uint64(l.TTL))
	add(leaseRemaining, uint64(l.Remaining))
	add(leaseOwner, l.Owner)
	add(leaseNumber, l.Number)
	return b
}

func decodeLease(b []byte) (l Lease, err error) {
	for f, err := range protofield.All(b) {
		if err != nil {
			return l, fmt.Errorf("%w: lease: %w", ErrDamaged, err)
		}
		if f.Type != protowire.VarintType {
			continue
		}
		switch f.Number {
		case leaseID:
			l.ID = int64(f.Varint)
		case leaseTTL:
			l.TTL = int64(f.Varint)
		case leaseRemaining:
			l.Remaining = int64(f.Varint)
		case leaseOwner:
			l.Owner = f.Varint
		case leaseNumber:
			l.Number = f.Varint
		}
	}
	return l, nil
}
