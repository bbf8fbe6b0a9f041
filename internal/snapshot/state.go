package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// State is what a new cluster begins with, beside the file's keys, leases and alarms.
type State struct {
	revision  int64 // the next write takes a higher one
	compacted int64 // the last compaction
	bumped    bool  // the revision was moved forward here
	placement *placement.Map
	dropped   []DroppedPin
	sum       uint64 // of the file's content
	level     version.Level
}

// levelOfUsers is the version of the cluster from which on there are users and roles. One
// that has them begins there: it must not be open until its version rises.
const levelOfUsers version.Level = 2

// levelOfPins is the version of the cluster from which on there are pins. As with users, a cluster
// that has some begins there.
const levelOfPins version.Level = 3

// readState reads a backend file in full. It changes nothing.
func readState(path string, partitions int, bump int64, lg *zap.Logger) (st State, err error) {
	b, err := backend.Open(path, backend.Options{Foreign: true, ReadOnly: true, Logger: lg})
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if st, err = ReadState(b, partitions, bump, lg); err != nil {
		return st, fmt.Errorf("reading %s: %w", path, err)
	}
	return st, nil
}

// ReadState returns what a cluster of so many partitions would begin with, its revision moved forward by bump. It reads
// all of the file, and changes nothing.
func ReadState(b *backend.Backend, partitions int, bump int64, lg *zap.Logger) (st State, err error) {
	if st.sum, err = b.StateSum(); err != nil {
		return st, err
	}
	meta, err := b.Meta()
	if err != nil {
		return st, err
	}
	users, _, err := recovery.Auth(&meta)
	if err != nil {
		return st, err
	}
	if !users.Empty() {
		st.level = levelOfUsers
	}
	last, extensions, err := readKeys(b)
	if err != nil {
		return st, err
	}
	st.revision = max(1, last, meta.Compacted)
	for _, p := range meta.Positions { // of stoa: revisions that wrote nothing were seen by clients
		st.revision = max(st.revision, p.Rev)
	}
	st.compacted = meta.Compacted
	if bump > command.HighestStart-st.revision {
		return st, fmt.Errorf("the file is at revision %d; increased by %d, that is more than the %d at which a cluster can begin", st.revision, bump, command.HighestStart)
	}
	if st.bumped = bump > 0; st.bumped {
		st.revision += bump
		st.compacted = st.revision
	}
	st.placement, st.dropped, err = place(extensions, &meta, partitions)
	if err != nil {
		return st, err
	}
	for _, d := range st.dropped {
		lg.Warn("dropping a pin", zap.String("prefix", d.Key), zap.Int("partition", d.Partition), zap.String("reason", d.Why))
	}
	if len(st.placement.Pins()) > 0 {
		st.level = max(st.level, levelOfPins)
	}
	return st, nil
}

// Initial is what the file of a member has in the place of the old cluster's.
func (st *State) Initial(self bootstrap.Self) backend.Initial {
	i := backend.Initial{
		Identity: backend.Identity{Cluster: uint64(self.Cluster), Server: uint64(self.Member), Partitions: st.placement.Partitions()},
		Position: backend.Position{Index: raftlog.Bootstrap.Index, Term: raftlog.Bootstrap.Term, Rev: st.revision},
		Blobs:    recovery.PlacementBlob(st.placement), Compacted: st.compacted, Bumped: st.bumped, Level: st.level,
	}
	for _, m := range self.Members {
		i.Members = append(i.Members, backend.Member{ID: uint64(m.ID), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	return i
}

// id is the checksum of all of the state.
func (st *State) id() uint64 {
	b := binary.BigEndian.AppendUint64(nil, st.sum)
	b = binary.BigEndian.AppendUint64(b, uint64(st.revision))
	b = binary.BigEndian.AppendUint64(b, uint64(st.compacted))
	return xxhash.Sum64(append(b, st.placement.Encode()...)) | 1
}

// readKeys returns the revision of the last change, and a store of the keys of extensions.
func readKeys(b *backend.Backend) (last int64, extensions *store.Store, err error) {
	extensions = store.New(nil)
	l := store.NewLoader([]*store.Store{extensions}, nil, nil)
	var failed error
	err = b.Scan(0, backend.Current, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		last = rev.Main
		if bytes.HasPrefix(kv.Key(), []byte(extension.Root)) {
			failed = l.Add(rev, tombstone, bytes.Clone(kv.Wire()))
		}
		return failed == nil
	})
	return last, extensions, errors.Join(err, failed, l.Finish())
}

// place is the partition map of the new cluster: its slots are dealt out evenly, and the
// extensions have the rules that they have in a cluster in which they are registered.
// Rules that the file has stay as they are, and pins (pins.go). The extensions are compiled for it,
// so that one that this version can't run is found here.
func place(extensions *store.Store, meta *backend.Meta, partitions int) (m *placement.Map, dropped []DroppedPin, err error) {
	machine := apply.New(apply.Config{
		Stores: []*store.Store{extensions}, Leases: lease.NewTable(), Placement: placement.New(1),
	})
	if err := machine.LoadExtensions(); err != nil {
		return nil, nil, err
	}
	old := placement.New(1)
	if meta.Identity.Partitions > 0 {
		if old, err = recovery.Placement(meta); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	m = placement.New(partitions)
	if partitions > 1 { // one has no use for rules
		m = m.WithRules(old.Rules())
		m, _ = machine.Extensions().Place(m, extension.RuledBy(m))
	}
	m, dropped = pin(m, old, machine.Extensions().Asks)
	return m, dropped, nil
}
