package apply

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoa-kv/stoa/internal/auth"
)

// grantsBlob is the name under which the file has what is granted of quotas to partitions.
// What is used is counted at the start.
const grantsBlob = "quotas"

// CutGrants returns what is granted, to be stored; nil with one partition, or without quotas.
// The locks of all stores are held.
func (m *Machine) CutGrants() []byte {
	t := m.tenants.Load()
	if t == nil || len(t.shares) == 1 {
		return nil
	}
	b := protowire.AppendVarint(nil, uint64(len(t.shares)))
	b = protowire.AppendVarint(b, uint64(len(t.index.Quotas)))
	for q := range t.index.Quotas {
		for p := range t.shares {
			g := t.shares[p][q].granted
			b = protowire.AppendVarint(protowire.AppendVarint(b, uint64(g.keys)), uint64(g.bytes))
		}
	}
	return b
}

// AddGrants adds them to what a cut writes, if they aren't those that the file has.
func AddGrants(to map[string][]byte, file, now []byte) map[string][]byte {
	if string(file) == string(now) {
		return to
	}
	if to == nil {
		to = map[string][]byte{}
	}
	to[grantsBlob] = now
	return to
}

// LoadGrants counts what the quotas have, after users, roles and keys have been loaded, and
// sets what is granted to what is stored. In a file of another number of partitions, or
// without grants, nothing is granted: the first writes then need all partitions.
func (m *Machine) LoadGrants(values map[string][]byte) (stored []byte, err error) {
	m.recount(m.Auth())
	t, b := m.tenants.Load(), values[grantsBlob]
	if t == nil || len(t.shares) == 1 {
		return b, nil
	}
	grants, err := decodeGrants(b, len(t.shares), len(t.index.Quotas))
	if err != nil {
		return nil, fmt.Errorf("grants of quotas: %w", err)
	}
	for q := range t.index.Quotas {
		for p := range t.shares {
			t.shares[p][q].granted = amount{}
			if grants != nil {
				t.shares[p][q].granted = grants[q*len(t.shares)+p]
			}
		}
	}
	return b, nil
}

// decodeGrants returns nil for grants to others.
func decodeGrants(b []byte, partitions, quotas int) ([]amount, error) {
	var numbers []int64
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		numbers, b = append(numbers, int64(v)), b[n:]
	}
	if len(numbers) < 2 || numbers[0] != int64(partitions) || numbers[1] != int64(quotas) || len(numbers) != 2+2*partitions*quotas {
		return nil, nil
	}
	grants := make([]amount, partitions*quotas)
	for i := range grants {
		grants[i] = amount{numbers[2+2*i], numbers[3+2*i]}
	}
	return grants, nil
}

// QuotaUsage is a quota and what its keys take.
type QuotaUsage struct {
	auth.Quota
	Used    auth.Limits
	Granted []auth.Limits // by partition
}

// QuotasUsed returns the quotas that are in force, in order, with what is used of each. It
// takes the read locks of all stores.
func (m *Machine) QuotasUsed() []QuotaUsage {
	if m.tenants.Load() == nil {
		return nil
	}
	all := m.Placement().All()
	m.rlock(all)
	defer m.runlock(all)
	t := m.tenants.Load()
	if t == nil {
		return nil
	}
	list := make([]QuotaUsage, len(t.index.Quotas))
	for q := range list {
		used := t.used(q)
		list[q] = QuotaUsage{Quota: t.index.Quotas[q], Used: auth.Limits{Keys: used.keys, Bytes: used.bytes}}
		for p := range t.shares {
			g := t.shares[p][q].granted
			list[q].Granted = append(list[q].Granted, auth.Limits{Keys: g.keys, Bytes: g.bytes})
		}
	}
	return list
}
