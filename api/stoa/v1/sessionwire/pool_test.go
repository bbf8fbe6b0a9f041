package sessionwire

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any sequence of Get and Put, a buffer has the requested length and a
// single owner.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := new(pool)
		out := map[*byte]*[]byte{}
		size := rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(1<<largestBuffer-2, 1<<largestBuffer+2))
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				n := size.Draw(t, "n")
				b := p.Get(n)
				require.Len(t, *b, n)
				whole := (*b)[:cap(*b)]
				if len(whole) == 0 {
					return
				}
				_, twice := out[&whole[0]]
				require.False(t, twice, "handed out twice")
				out[&whole[0]] = b
			},
			"put": func(t *rapid.T) {
				for at, b := range out {
					delete(out, at)
					if rapid.Bool().Draw(t, "shorter") {
						*b = (*b)[:len(*b)/2]
					}
					p.Put(b)
					return
				}
			},
			"put another": func(t *rapid.T) {
				b := make([]byte, size.Draw(t, "cap"))
				p.Put(&b)
			},
		})
	})
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := new(pool)
	p.Put(p.Get(40 << 10))
	require.Less(t, testing.AllocsPerRun(100, func() { p.Put(p.Get(40 << 10)) }), 0.5)
}
