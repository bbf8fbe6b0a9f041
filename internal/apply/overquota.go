package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/placement"
)

// ForQuotas returns the partitions that a write needs, beside those of its keys, because of quotas: all of them, if it has
// come back from those of its keys, or if it is a put by which its partition may not grow. Others find that out where they
// take effect, and come back.
func (m *Machine) ForQuotas(req proto.Message, again bool) placement.Set {
	put, is := req.(*pb.PutRequest)
	if !is && !again {
		return 0
	}
	return m.PutForQuotas(put.GetKey(), len(put.GetValue()), again)
}

// PutForQuotas is ForQuotas for a put of a value of so many bytes.
func (m *Machine) PutForQuotas(key []byte, size int, again bool) placement.Set {
	t := m.tenants.Load()
	if t == nil || len(t.shares) == 1 || !again && m.mayGrow(t, key, size) {
		return 0
	}
	return m.Placement().All()
}

// OverQuota returns the refusal of a put that doesn't fit into a quota as things stand here,
// nil if it may fit: the log decides then, and about all puts that can be refused, or allowed,
// for other reasons. The refusal is that which the log would have at a revision that all
// partitions show here; it is the caller's to make sure that this is no older than the request.
//
// So a tenant at its limit that goes on trying doesn't cost an entry in every log for each
// attempt.
func (m *Machine) OverQuota(p *pb.PutRequest, credential uint64) error {
	t := m.tenants.Load()
	if t == nil || p.GetLease() != 0 || p.GetIgnoreValue() || p.GetIgnoreLease() {
		return nil
	}
	if m.mayGrow(t, p.GetKey(), len(p.GetValue())) || m.Extensions().Concerns(p.GetKey()) || len(m.Alarms()) > 0 {
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

// mayGrow looks at the key's partition alone: far from the limit that is enough. size is that of the value to be put.
func (m *Machine) mayGrow(t *tenants, key []byte, size int) bool {
	list := t.index.Of(key)
	if len(list) == 0 {
		return true
	}
	at := m.Placement().Partition(key)
	m.Stores[at].RLock()
	defer m.Stores[at].RUnlock()
	change := m.changeBy(at, key, size)
	for _, q := range list {
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
func (m *Machine) changeBy(partition int, key []byte, size int) amount {
	return difference(sizeOf(m.Stores[partition].Get(key)), int64(len(key)+size))
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
	change := m.changeBy(m.Placement().Partition(p.GetKey()), p.GetKey(), len(p.GetValue()))
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
