package auth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/protofield"
)

// Quota limits the keys below a prefix, or those in the ranges that a role may write, however
// they come to be; and, on each server, the watches and requests of a role's users or for keys
// below a prefix. Quotas are in force while permissions are.
type Quota struct {
	Role, Prefix string // one of the two
	Limits
}

// Limits are those of one quota; 0 is none.
type Limits struct {
	Bytes int64 // of the keys that exist now and their values
	Keys  int64
	// On each server: watches that are open, and requests per second, at most MaxRate.
	Watchers int64
	Rate     int64
}

// MaxRate bounds the rate of a quota, so that whoever counts can do so in nanoseconds.
const MaxRate = 1_000_000_000

// Same reports whether two quotas are for the same role or prefix.
func (q *Quota) Same(o *Quota) bool { return q.Role == o.Role && q.Prefix == o.Prefix }

func (q *Quota) String() string {
	if q.Role != "" {
		return fmt.Sprintf("role %q", q.Role)
	}
	return fmt.Sprintf("prefix %q", q.Prefix)
}

func compareQuotas(a, b Quota) int {
	return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Prefix, b.Prefix))
}

// maxQuotas bounds the work of finding those of a key, and the number of metrics.
const maxQuotas = 1000

// maxPrefix is how long a prefix may be.
const maxPrefix = 1024

// QuotaChange sets a quota, or removes the one for the same role or prefix.
type QuotaChange struct {
	Quota
	Remove bool
}

// ChangeQuota returns the state after a change of a quota: the same if it has no effect.
func (s *State) ChangeQuota(c QuotaChange) (*State, error) {
	if err := s.checkQuota(&c); err != nil {
		return nil, err
	}
	at, has := slices.BinarySearchFunc(s.quotas, c.Quota, compareQuotas)
	n := *s
	switch {
	case c.Remove && !has:
		return nil, fault.BadQuota.With(fmt.Sprintf("stoa: there is no quota of %v", &c.Quota))
	case c.Remove:
		n.quotas = slices.Delete(slices.Clone(s.quotas), at, at+1)
	case has && s.quotas[at] == c.Quota:
		return s, nil
	case has:
		n.quotas = slices.Clone(s.quotas)
		n.quotas[at] = c.Quota
	case len(s.quotas) == maxQuotas:
		return nil, fault.BadQuota.With(fmt.Sprintf("stoa: there can't be more than %d quotas", maxQuotas))
	default:
		n.quotas = slices.Insert(slices.Clone(s.quotas), at, c.Quota)
	}
	n.Revision++
	return n.indexed(), nil
}

func (s *State) checkQuota(c *QuotaChange) error {
	switch {
	case (c.Role == "") == (c.Prefix == ""):
		return fault.BadQuota.With("stoa: a quota is for a role or for a prefix")
	case len(c.Prefix) > maxPrefix:
		return fault.BadQuota.With(fmt.Sprintf("stoa: the prefix of a quota can't be longer than %d bytes", maxPrefix))
	case c.Remove:
		return nil
	case c.Bytes < 0 || c.Keys < 0 || c.Watchers < 0 || c.Rate < 0:
		return fault.BadQuota.With("stoa: the limits of a quota can't be negative")
	case c.Rate > MaxRate:
		return fault.BadQuota.With(fmt.Sprintf("stoa: the rate of a quota can't be above %d requests per second", MaxRate))
	case c.Limits == Limits{}:
		return fault.BadQuota.With("stoa: a quota needs a limit")
	case c.Role == Root:
		return fault.BadQuota.With("stoa: the role root can't have a quota")
	case c.Role != "" && s.roles[c.Role] == nil:
		return fault.RoleNotFound
	}
	return nil
}

// Quotas returns all quotas, in order. The slice is shared.
func (s *State) Quotas() []Quota { return s.quotas }

// withoutRole is a list of quotas without that of a role.
func withoutRole(list []Quota, role string) []Quota {
	return slices.DeleteFunc(slices.Clone(list), func(q Quota) bool { return q.Role == role })
}

// The fields of an encoded quota and change.
const (
	quotaRole protowire.Number = iota + 1
	quotaPrefix
	quotaBytes
	quotaKeys
	quotaRemove
	quotaWatchers
	quotaRate
)

// AppendTo appends the encoded change.
func (c *QuotaChange) AppendTo(b []byte) []byte {
	for field, text := range map[protowire.Number]string{quotaRole: c.Role, quotaPrefix: c.Prefix} {
		if text != "" { // one of them is
			b = protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
		}
	}
	b = appendNumber(b, quotaBytes, uint64(c.Bytes))
	b = appendNumber(b, quotaKeys, uint64(c.Keys))
	if c.Remove {
		b = appendNumber(b, quotaRemove, 1)
	}
	b = appendNumber(b, quotaWatchers, uint64(c.Watchers))
	return appendNumber(b, quotaRate, uint64(c.Rate))
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// DecodeQuotaChange is the inverse of AppendTo.
func DecodeQuotaChange(b []byte) (c QuotaChange, err error) {
	for f, err := range protofield.All(b) {
		if err != nil {
			return c, err
		}
		switch f.Type {
		case protowire.BytesType:
			switch f.Number {
			case quotaRole:
				c.Role = string(f.Bytes)
			case quotaPrefix:
				c.Prefix = string(f.Bytes)
			}
		case protowire.VarintType:
			switch f.Number {
			case quotaBytes:
				c.Bytes = int64(f.Varint)
			case quotaKeys:
				c.Keys = int64(f.Varint)
			case quotaRemove:
				c.Remove = f.Varint != 0
			case quotaWatchers:
				c.Watchers = int64(f.Varint)
			case quotaRate:
				c.Rate = int64(f.Varint)
			}
		}
	}
	return c, nil
}

// storeQuotas adds the quotas to what is kept.
func (s *State) storeQuotas(to map[string][]byte) {
	for _, q := range s.quotas {
		c := QuotaChange{Quota: q}
		to[keyQuota+q.Role+"\x00"+q.Prefix] = c.AppendTo(nil)
	}
}

// loadQuotas reads them.
func (s *State) loadQuotas(from map[string][]byte) error {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if len(key) < len(keyQuota) || key[:len(keyQuota)] != keyQuota {
			continue
		}
		c, err := DecodeQuotaChange(from[key])
		if err != nil {
			return fmt.Errorf("quota %q: %w", key, err)
		}
		s.quotas = append(s.quotas, c.Quota)
	}
	slices.SortFunc(s.quotas, compareQuotas)
	return nil
}
