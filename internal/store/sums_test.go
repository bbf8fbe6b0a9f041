package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

func sumsOf(kvs ...kvwire.KeyValue) (s store.Sums) {
	for _, kv := range kvs {
		s.With(kv)
	}
	return s
}

func numbered(i int, value string) kvwire.KeyValue {
	return kvwire.Make(fmt.Appendf(nil, "key-%d", i), []byte(value), kvwire.Fields{CreateRevision: 2, ModRevision: int64(2 + i), Version: 1, Lease: 7})
}

// They are in files: a change needs another version of them there, and a level.
func TestSumsStayAsTheyAre(t *testing.T) {
	s := sumsOf(numbered(1, "a"), numbered(2, "b"))
	require.Equal(t, store.Sum{Content: 0x4b905c652967edbe, Place: 0x248626dddae1f502}, s.Of([]byte("key-1")))
	require.Equal(t, store.Sum{Content: 0x41981214068b6b19, Place: 0xb43a08221ae40501}, s.Of([]byte("key-2")))
}

// Whatever changes in a key or in what belongs to it, the sums differ; and the key is named
// when it is one value.
func TestSumsNameTheKeyThatDiffers(t *testing.T) {
	var all []kvwire.KeyValue
	for i := range 1000 {
		all = append(all, numbered(i, fmt.Sprint("value ", i)))
	}
	right := sumsOf(all...)
	for bit := range 8 * all[500].Len() {
		raw := append([]byte{}, all[500].Wire()...)
		raw[bit/8] ^= 1 << (bit % 8)
		kv, err := kvwire.Parse(raw)
		if err != nil {
			continue
		}
		wrong := append([]kvwire.KeyValue{}, all...)
		wrong[500] = kv
		have := sumsOf(wrong...)
		require.NotEqual(t, right, have)
		if string(kv.Key()) != "key-500" {
			continue
		}
		d := have.Minus(&right)
		for i := range all {
			require.Equal(t, i == 500, d.Of(all[i].Key()).Names(all[i].Key()))
		}
	}
}

// What sums cost a put is the difference to one of nothing, over values that aren't cached.
func BenchmarkSums(b *testing.B) {
	keys := shuffled(1 << 16)
	s, _ := filled(b)
	sums, after := store.Sums{}, kvwire.Make(keys[0], make([]byte, 256), kvwire.Fields{CreateRevision: 2, ModRevision: 3, Version: 1})
	for i := 0; b.Loop(); i++ {
		before := s.Get(keys[i%len(keys)])
		if before.ModRevision() == 0 || before.Version() == 0 {
			b.Fatal("missing")
		}
		sums.Replace(before, after)
	}
}
