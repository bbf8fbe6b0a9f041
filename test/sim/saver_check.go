package sim

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/snapshot"
	"github.com/stoa-kv/stoa/internal/store"
)

// opened is what is in a file, loaded as a server loads it.
type opened struct {
	file    *backend.Backend
	meta    backend.Meta
	stores  []*store.Store
	leases  *lease.Table
	auth    *auth.State
	machine *apply.Machine
}

// read makes a file of a backup's bytes, to be closed.
func (b *saved) read() (*backend.Backend, error) {
	if b.dir == "" {
		return openContent("", b.content)
	}
	path := filepath.Join(b.dir, "backup")
	file, err := openContent(path, b.content)
	if err == nil {
		err = os.Remove(path) // it goes when it is closed
	}
	return file, err
}

// load loads a file, as core's open does, of a cluster that began with these members. It compares the checksums that are in it.
func load(b *backend.Backend, begins []*pb.Member, codes *apply.Codes) (o *opened, err error) {
	if err := recovery.Resize(b); err != nil {
		return nil, err
	}
	o = &opened{file: b}
	if o.meta, err = b.Meta(); err != nil {
		return nil, err
	}
	groups, err := recovery.ReadGroups(&o.meta)
	if err != nil {
		return nil, err
	}
	placed, err := recovery.Placement(&o.meta)
	if err != nil {
		return nil, err
	}
	members, err := recovery.ReadMembership(&o.meta, membership.Of(begins...))
	if err != nil {
		return nil, err
	}
	epochs, err := recovery.ReadEpochs(&o.meta)
	if err != nil {
		return nil, err
	}
	if o.stores, o.leases, err = recovery.Load(b, &o.meta, placed, false, nil); err != nil {
		return nil, err
	}
	if o.auth, _, err = recovery.Auth(&o.meta); err != nil {
		return nil, err
	}
	o.machine = apply.New(apply.Config{Stores: o.stores, Leases: o.leases, Placement: placed, Codes: codes})
	o.machine.LoadMembership(members.List, members.Configs)
	o.machine.LoadAlarms(o.meta.Alarms)
	o.machine.LoadEpochs(epochs)
	o.machine.LoadGroups(groups)
	o.machine.LoadAuth(o.auth)
	if _, err := o.machine.LoadGrants(o.meta.Blobs); err != nil {
		return nil, err
	}
	if err := o.machine.LoadExtensions(); err != nil {
		return nil, err
	}
	return o, o.machine.LoadSessions(o.meta.Blobs)
}

// rev is the revision of the file: the next write takes a higher one.
func (o *opened) rev() int64 {
	rev := max(1, o.meta.Compacted)
	for _, p := range o.meta.Positions {
		rev = max(rev, p.Rev)
	}
	return rev
}

// keys are those that there are, and an error if one is twice, or isn't where the map says.
func (o *opened) keys() (map[string]kvwire.KeyValue, error) {
	all := map[string]kvwire.KeyValue{}
	for p, s := range o.stores {
		var wrong error
		s.Walk(nil, s.Keys(), func(key []byte) {
			if at := o.machine.Placement().Partition(key); at != p {
				wrong = fmt.Errorf("%q is in partition %d, and the map says %d", key, p, at)
			}
			all[string(key)] = s.Get(key)
		})
		if wrong != nil {
			return nil, wrong
		}
	}
	return all, nil
}

// check compares a backup with the history, with what its server had, and with what was known when it was asked for. It is
// opened as the file of its server, and as that of a new cluster.
func (v *saver) check(a *order) {
	c, b := v.c, a.made
	if b.flipped || c.failure != nil {
		return
	}
	file, err := b.read()
	if err != nil {
		c.fail("backup", "backup %d of server %d can't be read: %v", a.n, b.server, err)
		return
	}
	o, err := load(file, c.begins, c.codes)
	if err == nil {
		a.opened = o
		err = v.compare(a, o)
	}
	if err == nil {
		b.rev = o.rev()
		err = v.compareServer(a, o)
	}
	if err == nil {
		err = v.compareAsked(a, o)
	}
	if err == nil {
		err = v.begin(a, o)
	}
	if err != nil {
		c.fail("backup", "backup %d of server %d, asked for at %v with revision %d shown (stale %v): %v", a.n, b.server, a.at, a.floor, b.stale, err)
	}
}

// compareBackups compares the backups once more, when all of the history is known: a revision that is missing in them may have
// come later.
func (c *cluster) compareBackups() {
	if c.saver == nil {
		return
	}
	for _, a := range c.saver.all {
		if a.made.flipped || c.failure != nil {
			continue
		}
		if err := c.saver.compare(a, a.opened); err != nil {
			c.fail("backup", "backup %d of server %d, asked for at %v with revision %d shown (stale %v), when all is known: %v", a.n, a.made.server, a.at, a.floor, a.made.stale, err)
		}
	}
	c.saver.close()
}

// close ends the use of the backups that there are.
func (v *saver) close() {
	for _, a := range v.all {
		if a.opened != nil {
			_ = a.opened.file.Close()
		}
	}
	v.all = nil
}

// compare: a backup has all changes up to its revision, and no others; unless it is stale, all that clients had been shown
// before. Its leases are those at its place in the log.
func (v *saver) compare(a *order, o *opened) error {
	g, through := v.c.ledger, o.rev()
	if !a.made.stale {
		through = max(through, a.floor)
	}
	want, changes := map[string]kvwire.KeyValue{}, 0
	for _, r := range g.ordered {
		if r.rev > through {
			break
		}
		for _, ch := range r.changes {
			switch {
			case isNotice(ch):
				continue
			case ch.Delete:
				delete(want, string(ch.Kv.Key()))
			default:
				want[string(ch.Kv.Key())] = ch.Kv
			}
			if r.rev > o.meta.Compacted {
				changes++
			}
		}
	}
	have, err := o.keys()
	if err != nil {
		return err
	}
	if err := sameKeys(have, want); err != nil {
		return fmt.Errorf("of revision %d: %w", o.rev(), err)
	}
	if err := v.compareHistory(o, changes); err != nil {
		return fmt.Errorf("of revision %d: %w", o.rev(), err)
	}
	leases := map[int64]int64{}
	for _, l := range o.meta.Leases {
		leases[l.ID] = l.TTL
	}
	if want := g.leasesAt(o.meta.Positions[0].Index); !maps.Equal(leases, want) {
		return fmt.Errorf("at index %d of group 0 it has the leases %v, should have %v", o.meta.Positions[0].Index, leases, want)
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if id := have[key].Lease(); id != 0 && leases[id] == 0 {
			return fmt.Errorf("of revision %d: key %q has lease %d, which there isn't", o.rev(), key, id)
		}
	}
	return nil
}

func sameKeys(have, want map[string]kvwire.KeyValue) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have[key] != want[key] {
			return fmt.Errorf("key %q is %v, should be %v", key, have[key], want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, is := want[key]; !is {
			return fmt.Errorf("key %q is there, and shouldn't be: %v", key, have[key])
		}
	}
	return nil
}

// compareHistory: each change in the file is one of the history, and all are there that haven't been compacted.
func (v *saver) compareHistory(o *opened, changes int) (err error) {
	scanErr := o.file.Scan(0, backend.Current, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		r := v.c.ledger.revisions[rev.Main]
		if r == nil || !slices.ContainsFunc(r.changes, func(ch store.Change) bool {
			return ch.Sub == rev.Sub && ch.Delete == tombstone && bytes.Equal(ch.Kv.Wire(), kv.Wire())
		}) {
			err = fmt.Errorf("change %d.%d of key %q is not in the history", rev.Main, rev.Sub, kv.Key())
			return false
		}
		if rev.Main > o.meta.Compacted {
			changes--
		}
		return true
	})
	switch {
	case scanErr != nil:
		return scanErr
	case err == nil && changes != 0:
		return fmt.Errorf("it lacks %d changes since the last compaction, at revision %d", changes, o.meta.Compacted)
	}
	return err
}

// compareServer: what the ledger doesn't know of is what the server had at the cut.
func (v *saver) compareServer(a *order, o *opened) error {
	b := a.made
	if has := alarmsText(o.meta.Alarms); has != b.alarms {
		return fmt.Errorf("it has the alarms %s, and its server had %s", has, b.alarms)
	}
	if !reflect.DeepEqual(o.auth.Stored(), b.auth.Stored()) {
		return fmt.Errorf("its users are not those of its server")
	}
	if b.digest == nil {
		return nil
	}
	if parts := b.digest.Differing(o.machine.Digest()); len(parts) > 0 {
		return fmt.Errorf("its %v are not those of its server", parts)
	}
	return nil
}

// compareAsked: unless it is stale, a backup has what was acknowledged before it was asked for.
func (v *saver) compareAsked(a *order, o *opened) error {
	if a.made.stale {
		return nil
	}
	revoked := map[int64]bool{}
	for _, e := range v.c.ledger.systems {
		revoked[e.revoked] = true
	}
	for _, id := range a.leases {
		if _, is := o.leases.Get(id); !is && !revoked[id] {
			return fmt.Errorf("it lacks the lease %d, which was granted, and isn't revoked", id)
		}
	}
	if t := a.mayNot; t != nil && t.mayRead(o.auth) {
		return fmt.Errorf("in it %s has a right that had been revoked", t.user())
	}
	if t := a.may; t != nil && t.asked == 0 && !t.mayRead(o.auth) {
		return fmt.Errorf("in it %s lacks a right that had been granted", t.user())
	}
	return nil
}

// begin makes the backup the first state of a new cluster, as stoactl snapshot restore does. It has the same keys,
// leases and users.
func (v *saver) begin(a *order, o *opened) error {
	partitions := 1 + v.rng.IntN(6)
	file, err := a.made.read()
	if err != nil {
		return err
	}
	defer file.Close()
	self := bootstrap.Self{Cluster: 0x5705, Member: 1, Members: []bootstrap.Member{{ID: 1, Name: "restored"}}}
	n, err := restored(file, self, partitions, v.c.codes)
	if err != nil {
		return fmt.Errorf("no cluster of %d partitions can begin with it: %w", partitions, err)
	}
	want, err := o.keys()
	if err != nil {
		return err
	}
	have, err := n.keys()
	if err == nil {
		err = sameKeys(have, want)
	}
	switch {
	case err != nil:
		return fmt.Errorf("a cluster of %d partitions that begins with it: %w", partitions, err)
	case n.rev() != o.rev():
		return fmt.Errorf("a cluster that begins with it is at revision %d, and not at %d", n.rev(), o.rev())
	case !reflect.DeepEqual(n.meta.Leases, o.meta.Leases):
		return fmt.Errorf("a cluster that begins with it has the leases %v, and not %v", n.meta.Leases, o.meta.Leases)
	case !reflect.DeepEqual(n.auth.Stored(), o.auth.Stored()):
		return fmt.Errorf("a cluster that begins with it has other users")
	case len(n.meta.Members) != len(self.Members):
		return fmt.Errorf("a cluster that begins with it has the members %v", n.meta.Members)
	}
	return nil
}

// restored makes a file the first state of a new cluster, and loads it.
func restored(file *backend.Backend, self bootstrap.Self, partitions int, codes *apply.Codes) (*opened, error) {
	st, err := snapshot.ReadState(file, partitions, 0, zap.NewNop())
	if err != nil {
		return nil, err
	}
	if err := file.Reset(st.Initial(self)); err != nil {
		return nil, err
	}
	return load(file, nil, codes)
}
