package recovery

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
)

// InheritStores returns the stores of the next generation of groups, made of those of one that has
// ended: the same that Load would make of the file that Resize has made, of which meta is, in a time
// that depends on the keys that move at once alone (apply, "following"). Nothing may be in the stores
// that isn't in the file, and nothing else may change them; readers may hold their locks.
//
// was and now are the maps of the two generations.
func InheritStores(meta *backend.Meta, stores []*store.Store, was, now *placement.Map) []*store.Store {
	for _, s := range stores {
		s.Lock()
		defer s.Unlock()
	}
	n := len(meta.Positions)
	all := stores
	for p := len(all); p < n; p++ {
		at := meta.Positions[p]
		all = append(all[:p:p], stores[0].Beside(at.Index, at.Term, at.Rev))
	}
	begins := now
	if t := now.Transit(); t != nil {
		begins = t.From // no key has moved yet
	}
	for _, span := range between(was, begins) {
		store.Move(all, span.Key, span.End, store.Route{To: begins.Run, Still: span.Still}, nil)
	}
	for _, gone := range all[n:] {
		all[0].Absorb(gone, all[:n])
	}
	for p, s := range all[:n] {
		s.SetRev(max(meta.Positions[p].Rev, s.Compacted()))
	}
	return all[:n:n]
}

// between is where keys can be that the maps of two generations put into different partitions.
func between(was, now *placement.Map) []placement.Span {
	if was.Transit() != nil {
		return []placement.Span{{End: []byte{0}}}
	}
	n := max(was.Partitions(), now.Partitions())
	return placement.Difference(was.Over(n), now.Over(n))
}

// InheritLogs returns the logs of the groups of the next generation. Those of groups that go on are
// the same, and all their entries have to be durable.
func InheritLogs(groups *membership.Groups, configs []*membership.Config, logs []*raftlog.Log, stores []*store.Store) ([]*raftlog.Log, error) {
	all := NewLogs(groups, configs)
	for p, l := range all {
		index, term := stores[p].Applied()
		at := raftlog.Position{Index: index, Term: term}
		if p >= len(logs) {
			if _, err := l.Recover(at); err != nil {
				return nil, fmt.Errorf("beginning a group: %w", err)
			}
			continue
		}
		all[p] = logs[p]
		c := configs[p]
		if err := logs[p].Resume(at, &raftpb.ConfState{Voters: c.Voters, Learners: c.Learners}); err != nil {
			return nil, err
		}
	}
	return all, nil
}
