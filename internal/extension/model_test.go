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

func (m *model) Permits(_, _ []byte, _ bool) bool { return true }

func (m *model) HasLease(_ []byte, id int64) bool { return id%2 == 0 }

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
	// The same comes of it in whatever order they come, and whatever was there before.
	shuffled := slices.Clone(list)
	if len(list) > 1 {
		shuffled = rapid.Permutation(list).Draw(t, "order")
	}
	reg := New(Defaults, nil)
	for _, e := range shuffled {
		if rapid.Bool().Draw(t, "replaces") {
			old := *list[rapid.IntRange(0, len(list)-1).Draw(t, "by")]
			old.Name, old.Order = e.Name, 1
			before := reg
			reg = reg.With(&old)
			if rapid.Bool().Draw(t, "removed") {
				reg = reg.Without(old.Name)
				require.Equal(t, before.memory, reg.memory)
			}
		}
		reg = reg.With(e)
	}
	return list, reg
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

// TestTheRegistryFindsWhatAScanFinds compares its indexes with the
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
			require.Equal(t, concerned || strings.HasPrefix(key, Root), reg.Concerns([]byte(key)), key)
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
			var found []string
			for e := range reg.EventsIn([]byte(key), []byte(end)) {
				found = append(found, e.Name)
			}
			slices.Sort(found)
			found = slices.Compact(found)
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

// TestRulesBringScopesTogether: whatever is registered and removed, the map has a rule
// for every pattern of a scope and every home, and no other; an extension that has
// never shared a key with another has all its keys in one slot; and a server that
// starts in the middle of it comes to the same.
func TestRulesBringScopesTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, _ := drawRegistry(t)
		reg, now := New(Defaults, nil), placement.New(8)
		ruled := RuledBy(now)
		for _, e := range list {
			reg = reg.With(e)
			if rapid.Bool().Draw(t, "removes") {
				reg = reg.Without(rapid.SampledFrom(list).Draw(t, "which").Name)
			}
			if rapid.Bool().Draw(t, "busy") {
				continue // keys move: what is registered meanwhile waits
			}
			again, _ := reg.Place(now, RuledBy(now))
			now, ruled = reg.Place(now, ruled)
			require.Equal(t, now.Rules(), again.Rules())
		}
		now, _ = reg.Place(now, ruled)
		var keys, want []string
		for _, r := range now.Rules() {
			keys = append(keys, r.Key)
		}
		for _, e := range reg.All() {
			want = append(want, string(Home(e.Name)))
			for _, p := range e.Scope {
				want = append(want, string(p))
			}
			checkTogether(t, now, e, list)
		}
		slices.Sort(want)
		require.Equal(t, slices.Compact(want), keys)
	})
}

func checkTogether(t *rapid.T, m *placement.Map, e *Extension, list []*Extension) {
	if slices.ContainsFunc(list, func(o *Extension) bool { return o != e && scopesMeet(o, e) }) {
		return
	}
	home, _ := m.RuleFor(string(Home(e.Name)))
	for _, p := range e.Scope {
		slot, _ := m.RuleFor(string(p))
		require.Equal(t, home, slot, "%s of %s", p, e.Name)
	}
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
				require.Equal(t, append([]kvwire.KeyValue{}, now.Range(key, end, limit)...), append([]kvwire.KeyValue{}, scanned(o, key, end, limit)...))
				require.Equal(t, now.Count(key, end), counted(o, key, end))
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
				base.set(kvwire.Make(w.Key, w.Kv.Value(), kvwire.Fields{Lease: w.Kv.Lease()}))
			}
		}
		require.Equal(t, len(*now), len(*base))
		for i, kv := range *now {
			require.Equal(t, [3]any{kv.Key(), kv.Value(), kv.Lease()}, [3]any{(*base)[i].Key(), (*base)[i].Value(), (*base)[i].Lease()})
		}
	})
}

func scanned(o *overlay, key, end []byte, limit int) []kvwire.KeyValue {
	o.order()
	return o.scan(key, end, limit, o.within(key, end))
}

func counted(o *overlay, key, end []byte) int {
	o.order()
	return o.count(key, end, o.within(key, end))
}
