package extension

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

// model is a State: keys in order. Leases exist if they are even.
type model []kvwire.KeyValue

func (m *model) place(key []byte) (int, bool) {
	return slices.BinarySearchFunc(*m, key, func(kv kvwire.KeyValue, key []byte) int { return bytes.Compare(kv.Key(), key) })
}

func (m *model) set(kv kvwire.KeyValue) {
	if i, ok := m.place(kv.Key()); ok {
		(*m)[i] = kv
	} else {
		*m = slices.Insert(*m, i, kv)
	}
}

func (m *model) remove(key []byte) {
	if i, ok := m.place(key); ok {
		*m = slices.Delete(*m, i, i+1)
	}
}

func (m *model) Get(key []byte) kvwire.KeyValue {
	if i, ok := m.place(key); ok {
		return (*m)[i]
	}
	return kvwire.KeyValue{}
}

func (m *model) Range(key, end []byte, limit int) []kvwire.KeyValue {
	from, _ := m.place(key)
	to, _ := m.place(end)
	if to = max(from, to); limit > 0 {
		to = min(to, from+limit)
	}
	return (*m)[from:to]
}

func (m *model) Count(key, end []byte) int { return len(m.Range(key, end, 0)) }

func (m *model) HasLease(id int64) bool { return id%2 == 0 }

// universe is all strings that are as long or shorter.
func universe(length int) (all []string) {
	level := []string{""}
	for range length {
		var next []string
		for _, s := range level {
			for _, c := range []string{"/", "0", "a", "b"} {
				next = append(next, s+c)
			}
		}
		all, level = append(all, next...), next
	}
	return all
}

var (
	everyKey   = universe(4)
	drawnKey   = rapid.SampledFrom(universe(3))
	drawnCover = rapid.Custom(func(t *rapid.T) Pattern {
		p, _ := checkPattern(drawnKey.Filter(func(s string) bool { return s != "/" }).Draw(t, "cover"))
		return p
	})
)

func within(k, key, end string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

func drawRegistry(t *rapid.T) ([]*Extension, *Registry) {
	list := make([]*Extension, rapid.IntRange(0, 8).Draw(t, "extensions"))
	for i := range list {
		e := &Extension{Name: fmt.Sprint("e", i), Order: int64(i + 2)}
		e.Scope = rapid.SliceOfN(drawnCover, 0, 3).Draw(t, "scope")
		for range rapid.IntRange(0, 4).Draw(t, "operations") {
			op := Op(rapid.IntRange(0, int(ops)-1).Draw(t, "op"))
			e.Operations = append(e.Operations, OpSubscription{op, drawnCover.Draw(t, "pattern")})
		}
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			event := EventType(rapid.IntRange(0, int(eventTypes)-1).Draw(t, "event"))
			e.Events = append(e.Events, EventSubscription{event, drawnCover.Draw(t, "pattern")})
		}
		list[i] = e
	}
	shuffled := slices.Clone(list)
	if len(list) > 1 {
		shuffled = rapid.Permutation(list).Draw(t, "order")
	}
	return list, New(Defaults, shuffled)
}

func drawRange(t *rapid.T) (key, end string) {
	key = drawnKey.Draw(t, "key")
	switch rapid.IntRange(0, 3).Draw(t, "range") {
	case 0:
	case 1:
		end = "\x00"
	default:
		end = drawnKey.Filter(func(s string) bool { return s > key }).Draw(t, "end")
	}
	return key, end
}

// TestTheRegistryFindsWhatAScanFinds compares its indexes and filter with the
// definition: key by key, pattern by pattern.
func TestTheRegistryFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, reg := drawRegistry(t)
		require.Equal(t, list, append([]*Extension{}, reg.All()...))
		for range 8 {
			key := drawnKey.Draw(t, "key")
			concerned := false
			for op := range ops {
				var want []string
				for _, e := range list {
					if slices.ContainsFunc(e.Operations, func(s OpSubscription) bool { return s.Op == op && s.Pattern.Covers(key) }) {
						want = append([]string{e.Name}, want...)
					}
				}
				require.Equal(t, want, append([]string(nil), namesOf(reg.Operation(op, []byte(key), nil))...), "%s %s", op, key)
				concerned = concerned || want != nil
			}
			for event := range eventTypes {
				var want []string
				for _, e := range list {
					if slices.ContainsFunc(e.Events, func(s EventSubscription) bool { return s.Type == event && s.Pattern.Covers(key) }) {
						want = append(want, e.Name)
					}
				}
				require.Equal(t, want, append([]string(nil), namesOf(reg.Events(event, []byte(key)))...), "%s %s", event, key)
				concerned = concerned || want != nil
			}
			require.True(t, !concerned || reg.Concerns([]byte(key)), "the filter has lost %s", key)
		}
	})
}

func TestTheRegistryFindsForRangesWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, reg := drawRegistry(t)
		for range 4 {
			key, end := drawRange(t)
			op := Op(rapid.IntRange(0, int(ops)-1).Draw(t, "op"))
			var all, some []string
			for _, e := range list {
				if slices.ContainsFunc(e.Operations, func(s OpSubscription) bool { return s.Op == op && coversAll(s.Pattern, key, end) }) {
					all = append([]string{e.Name}, all...)
				}
				if slices.ContainsFunc(e.Events, func(s EventSubscription) bool { return coversAny(s.Pattern, key, end) }) {
					some = append(some, e.Name)
				}
			}
			require.Equal(t, all, append([]string(nil), namesOf(reg.Operation(op, []byte(key), []byte(end)))...), "%s %s %q", op, key, end)
			found := append([]string(nil), namesOf(reg.EventsIn([]byte(key), []byte(end)))...)
			slices.Sort(found)
			require.Equal(t, some, found, "%s %q", key, end)
		}
	})
}

func coversAll(p Pattern, key, end string) bool {
	if end == "\x00" {
		return false // there is always a key behind those of a pattern
	}
	missed := func(k string) bool { return within(k, key, end) && !p.Covers(k) }
	return !slices.ContainsFunc(everyKey, missed) && !missed(key+"\x00") // which is in every range
}

func coversAny(p Pattern, key, end string) bool {
	return slices.ContainsFunc(everyKey, func(k string) bool { return within(k, key, end) && p.Covers(k) })
}

// TestRulesBringScopesTogether: every key of a scope has a rule, the same rules
// follow from the same registrations, and an extension that shares no key with
// another has all its keys in one slot.
func TestRulesBringScopesTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, reg := drawRegistry(t)
		slots := map[string]int{}
		slot := func(key []byte) int { return slots[string(key)] }
		for i, e := range list {
			slots[string(Home(e.Name))] = i + 1
		}
		rules := reg.Rules(slot)
		require.Equal(t, rules, New(Defaults, list).Rules(slot))
		require.True(t, slices.IsSortedFunc(rules, func(a, b placement.Rule) int { return strings.Compare(a.Key, b.Key) }))
		for i, e := range list {
			alone := !slices.ContainsFunc(list, func(o *Extension) bool { return o != e && scopesMeet(o, e) })
			for _, p := range e.Scope {
				for _, k := range everyKey {
					if !p.Covers(k) {
						continue
					}
					at, ok := covering(rules, Pattern(k))
					require.True(t, ok, "no rule for %s", k)
					require.True(t, !alone || at == i+1, "%s of %s is in slot %d", k, e.Name, at)
				}
			}
		}
	})
}

func scopesMeet(a, b *Extension) bool {
	for _, p := range a.Scope {
		for _, q := range b.Scope {
			if p.overlaps(q) {
				return true
			}
		}
	}
	return false
}

// TestAnOverlayReadsLikeAModel: reads of a call see its own writes, and what is left
// of them in the end turns the keys into what it has seen.
func TestAnOverlayReadsLikeAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rev = 100
		base, now := &model{}, &model{}
		for i := range rapid.IntRange(0, 6).Draw(t, "keys") {
			kv := kvwire.Make([]byte(drawnKey.Draw(t, "key")), []byte("old"), kvwire.Fields{CreateRevision: int64(i + 2), ModRevision: int64(i + 3), Version: 2})
			base.set(kv)
			now.set(kv)
		}
		o := &overlay{base: base, rev: rev}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				key, value := []byte(drawnKey.Draw(t, "key")), []byte(drawnKey.Draw(t, "value"))
				lease := rapid.Int64Range(0, 2).Draw(t, "lease")
				o.put(key, value, lease)
				f := kvwire.Fields{Lease: lease, CreateRevision: rev, ModRevision: rev, Version: 1}
				if old := base.Get(key); old.Exists() {
					f.CreateRevision, f.Version = old.CreateRevision(), old.Version()+1
				}
				now.set(kvwire.Make(key, value, f))
			},
			"delete": func(t *rapid.T) {
				key := []byte(drawnKey.Draw(t, "key"))
				o.delete(key)
				now.remove(key)
			},
			"": func(t *rapid.T) {
				key, end := []byte(drawnKey.Draw(t, "from")), []byte(drawnKey.Draw(t, "to"))
				if bytes.Compare(key, end) > 0 {
					key, end = end, key
				}
				limit := rapid.IntRange(1, 5).Draw(t, "limit")
				require.Equal(t, now.Get(key), o.get(key))
				require.Equal(t, append([]kvwire.KeyValue{}, now.Range(key, end, limit)...), append([]kvwire.KeyValue{}, o.scan(key, end, limit)...))
				require.Equal(t, now.Count(key, end), o.count(key, end))
			},
		})
		seen := map[string]bool{}
		for _, w := range o.result() {
			require.False(t, seen[string(w.Key)], "%s is written twice", w.Key)
			seen[string(w.Key)] = true
			if w.Delete {
				require.True(t, base.Get(w.Key).Exists(), "%s is deleted though it isn't there", w.Key)
				base.remove(w.Key)
			} else {
				base.set(kvwire.Make(w.Key, w.Value, kvwire.Fields{Lease: w.Lease}))
			}
		}
		require.Equal(t, len(*now), len(*base))
		for i, kv := range *now {
			require.Equal(t, [3]any{kv.Key(), kv.Value(), kv.Lease()}, [3]any{(*base)[i].Key(), (*base)[i].Value(), (*base)[i].Lease()})
		}
	})
}
