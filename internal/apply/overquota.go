package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// OverQuota returns the refusal of a put that doesn't fit into a quota as things stand here,
// nil if it may fit: the log decides then, and about all puts that can be refused, or allowed,
// for other reasons. The refusal is that which the log would have at a revision that all
// partitions show here; it is the caller's to make sure that this is no older than the request.
//
// So a tenant at its limit that goes on trying doesn't cost an entry in every log for each
// attempt.
func (m *Machine) OverQuota(p *pb.PutRequest, credential uint64) error {
	t := m.tenants.Load()
	if t == nil || len(t.index.Of(p.GetKey())) == 0 || p.GetLease() != 0 || p.GetIgnoreValue() || p.GetIgnoreLease() {
		return nil
	}
	if m.mayGrow(t, p) || m.Extensions().Concerns(p.GetKey()) || len(m.Alarms()) > 0 {
		return nil
	}
	u, err := m.Auth().Authorize(credential)
	if err != nil || u.MayChange(p.GetKey(), nil, p.GetPrevKv()) != nil {
		return nil
	}
	all := m.Placement().All()
	m.rlock(all)
	defer m.runlock(all)
	return m.overQuota(p)
}

// mayGrow looks at the key's partition alone: far from the limit that is enough.
func (m *Machine) mayGrow(t *tenants, p *pb.PutRequest) bool {
	at := m.Placement().Partition(p.GetKey())
	m.Stores[at].RLock()
	defer m.Stores[at].RUnlock()
	change := m.changeBy(at, p)
	for _, q := range t.index.Of(p.GetKey()) {
		s, limits := &t.shares[at][q], &t.index.Quotas[q].Limits
		bound := s.granted
		if len(t.shares) == 1 {
			bound = amount{limits.Keys, limits.Bytes}
		}
		if grows(*limits, change, s.used, bound) {
			return false
		}
	}
	return true
}

// changeBy is what a put adds to its partition.
func (m *Machine) changeBy(partition int, p *pb.PutRequest) amount {
	before := sizeOf(m.Stores[partition].Get(p.GetKey()))
	change := amount{bytes: int64(len(p.GetKey())+len(p.GetValue())) - max(before, 0)}
	if before < 0 {
		change.keys = 1
	}
	return change
}

// overQuota decides under the locks of all partitions. They need not be at the same revision:
// one may show a put that filled the quota, and another not yet the deletion before it. So the
// sum counts only if none of them has changed the quota since the revision that all show.
func (m *Machine) overQuota(p *pb.PutRequest) error {
	t := m.tenants.Load()
	if t == nil || m.Placement().Transit() != nil {
		return nil
	}
	shown := m.Visible(0)
	for part := range m.Stores {
		shown = min(shown, m.Visible(part))
	}
	change := m.changeBy(m.Placement().Partition(p.GetKey()), p)
	for _, q := range t.index.Of(p.GetKey()) {
		quota := &t.index.Quotas[q]
		if used := t.used(int(q)); grows(quota.Limits, change, used, amount{quota.Keys, quota.Bytes}) {
			if t.changed(int(q)) > shown {
				return nil
			}
			return exceeded(quota, used, change)
		}
	}
	return nil
}

// changed is the revision of the last change of a quota's counts.
func (t *tenants) changed(q int) (rev int64) {
	for p := range t.shares {
		rev = max(rev, t.shares[p][q].changed)
	}
	return rev
}

// newest is the highest revision of any partition, under the locks of all.
func (m *Machine) newest() (rev int64) {
	for _, s := range m.Stores {
		rev = max(rev, s.Rev())
	}
	return rev
}
