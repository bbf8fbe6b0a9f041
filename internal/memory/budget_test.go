package memory

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"
)

const mib = 1 << 20

// Whatever calls do, the budget has what they hold, and never more than its room by what is
// taken, but for one request that is larger than that.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBudget(64 * mib)
		var held []int64
		var calls, streams, live int64
		sum := func() (n int64) {
			for _, h := range held {
				n += h
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.Equal(t, sum()+calls*PerCall, b.Requests())
				require.Equal(t, streams*PerStream, b.Answers())
			},
			"take": func(t *rapid.T) {
				n := rapid.Int64Range(1, 20*mib).Draw(t, "n")
				before := sum()
				if b.Take(n) {
					held = append(held, n)
					require.True(t, before == 0 || before+n <= b.Room())
				} else {
					require.Greater(t, before+n, b.Room())
				}
			},
			"give": func(t *rapid.T) {
				if len(held) > 0 {
					b.Give(held[0])
					held = held[1:]
				}
			},
			"call":   func(t *rapid.T) { b.Begin(uint32(calls % Stripes)); calls++ },
			"stream": func(t *rapid.T) { b.BeginStream(); streams++ },
			"return": func(t *rapid.T) {
				if calls > 0 {
					calls--
					b.End(uint32(calls % Stripes))
				}
			},
			"weigh": func(t *rapid.T) {
				live = rapid.Int64Range(0, 100*mib).Draw(t, "live")
				b.Weigh(live, 0)
				require.LessOrEqual(t, b.Room(), int64(64*mib/share))
				require.GreaterOrEqual(t, b.Room(), int64(64*mib/least))
				require.Equal(t, b.Requests() <= b.Room(), b.Unary() == Open)
				require.Equal(t, b.Answers() <= b.Room(), b.Streamed() == Open)
				require.Equal(t, b.Requests() > 2*b.Room(), b.Unary() == Over)
			},
		})
	})
}

// The keys leave less and less.
func TestRoomBesideKeys(t *testing.T) {
	b := NewBudget(64 * mib)
	for keys, room := range map[int64]int64{0: 16, 32 * mib: 8, 48 * mib: 4, 60 * mib: 4, 80 * mib: 4} {
		b.Weigh(keys, 0)
		require.Equal(t, room*mib, b.Room(), "%d MiB of keys", keys/mib)
	}
}

func TestNoBudgetBoundsNothing(t *testing.T) {
	b := NewBudget(0)
	b.Begin(0)
	b.End(0)
	b.BeginStream()
	b.EndStream()
	require.True(t, b.Take(1<<60))
	require.True(t, b.Fits(1<<60))
	b.Give(1 << 60)
	require.Equal(t, Open, b.Unary())
	require.Equal(t, Open, b.Streamed())
	require.Nil(t, b)
}

// slow is a pool that has little.
type slow struct {
	mem.BufferPool
	meanwhile func()
}

func (p slow) Get(n int) *[]byte {
	p.meanwhile()
	return p.BufferPool.Get(n)
}

// An answer counts from before there is memory for it until it is freed, or forgotten.
func TestLoans(t *testing.T) {
	b := NewBudget(64 * mib)
	plain := mem.DefaultBufferPool()
	pool := slow{plain, func() {
		require.EqualValues(t, mib, b.Answers(), "before the memory is there")
	}}
	buf := mem.NewBuffer(b.Lend(mib, pool, nil))
	require.EqualValues(t, mib, b.Answers())
	buf.Ref()
	buf.Free()
	require.EqualValues(t, mib, b.Answers())
	buf.Free()
	require.Zero(t, b.Answers())

	require.NotNil(t, mem.NewBuffer(b.Lend(mib, pool, nil)))
	require.EqualValues(t, mib, b.Answers())
	require.Eventually(t, func() bool { runtime.GC(); return b.Answers() == 0 }, 10*time.Second, time.Millisecond, "a buffer that nothing refers to")

	buf = mem.NewBuffer(b.Lend(200, plain, nil))
	require.Zero(t, b.Answers(), "small ones don't count")
	buf.Free()
}

// As many answers are promised as there is room for, and a promise is kept or taken back.
func TestPromises(t *testing.T) {
	pool := mem.DefaultBufferPool()
	b := NewBudget(64 * mib)
	var given []*Promise
	for {
		p, ok := b.Promise(mib)
		if !ok {
			break
		}
		given = append(given, p)
	}
	require.Len(t, given, 16)
	require.EqualValues(t, 16*mib, b.Answers())
	require.EqualValues(t, 1, b.Refused())

	buf := mem.NewBuffer(b.Lend(mib, pool, given[0]))
	for _, p := range given {
		p.TakeBack()
	}
	require.EqualValues(t, mib, b.Answers(), "a promise that has been kept isn't taken back")
	buf.Free()
	require.Zero(t, b.Answers())

	p, ok := b.Promise(200)
	require.True(t, ok)
	p.TakeBack()
	_, ok = (*Budget)(nil).Promise(1 << 60)
	require.True(t, ok)
	large, ok := b.Promise(20 * mib)
	require.True(t, ok, "one that is larger than the room, while there is no other")
	_, ok = b.Promise(mib)
	require.False(t, ok)
	large.TakeBack()
}

// Requests that are arriving have room of their own, half as much as those in progress.
func TestArriving(t *testing.T) {
	b := NewBudget(64 * mib)
	require.True(t, b.Arrive(8*mib))
	require.False(t, b.Arrive(1))
	require.EqualValues(t, 1, b.Refused())
	require.EqualValues(t, 8*mib, b.Arriving())
	require.True(t, b.Take(16*mib), "those in progress have theirs")
	b.Weigh(8*mib, 0)
	require.EqualValues(t, 16*mib, b.Room(), "what is alive is what arrives")
	b.Arrived(8 * mib)
	require.True(t, b.Arrive(20*mib), "one that is larger than the room, while there is no other")
}

// What streams hold is of the room of streams and answers, and keeps none of the latter from being sent.
func TestHeldByStreams(t *testing.T) {
	b := NewBudget(64 * mib)
	require.True(t, b.Hold(16*mib))
	require.False(t, b.Hold(1))
	require.EqualValues(t, 16*mib, b.Answers())
	require.Zero(t, b.Arriving())
	require.True(t, b.Arrive(8*mib))
	require.False(t, b.Tight())
	promise, ok := b.Promise(16 * mib)
	require.True(t, ok)
	promise.TakeBack()
	b.BeginStream()
	b.Weigh(0, 0)
	require.Equal(t, Full, b.Streamed())
	b.EndStream()
	b.Held(16 * mib)
	require.Zero(t, b.Answers())
}

// Watches have half of the room of streams and answers.
func TestWatches(t *testing.T) {
	b := NewBudget(64 * mib)
	b.Weigh(0, 8*mib/PerWatch)
	require.True(t, b.Watch())
	require.EqualValues(t, 8*mib, b.Answers())
	require.Equal(t, Open, b.Streamed())
	b.Weigh(8*mib, 8*mib/PerWatch+1)
	require.False(t, b.Watch())
	require.EqualValues(t, 1, b.Refused())
	require.Equal(t, Open, b.Streamed(), "answers have the other half")
	b.Weigh(0, 0)
	require.True(t, b.Watch())
}

func TestLoansAtOnce(t *testing.T) {
	pool := mem.DefaultBufferPool()
	b := NewBudget(64 * mib)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				buf := mem.NewBuffer(b.Lend(32<<10, pool, nil))
				if i%10 > 0 {
					buf.Free()
				}
				if b.Take(mib) {
					b.Give(mib)
				}
				b.Weigh(int64(i)*mib/10, 0)
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { runtime.GC(); return b.Answers() == 0 }, 10*time.Second, time.Millisecond)
}

func TestScarce(t *testing.T) {
	b := NewBudget(100 * mib)
	b.Weigh(79*mib, 0)
	require.False(t, b.Scarce())
	b.Weigh(81*mib, 0)
	require.True(t, b.Scarce())
	require.False(t, b.Exhausted(89*mib))
	require.True(t, b.Exhausted(91*mib))
	require.False(t, (*Budget)(nil).Scarce())
}

// The next look comes before what is left can be used up, and seldom while there is plenty.
func TestPause(t *testing.T) {
	const gib = 1 << 30
	b := NewBudget(8 * gib)
	b.Weigh(0, 0)
	require.Equal(t, mostPause, b.Pause())

	require.True(t, b.Take(2*gib-100_000_000))
	b.Weigh(0, 0)
	require.Equal(t, 100*time.Millisecond, b.Pause(), "requests")
	b.Give(2*gib - 100_000_000)

	for range 2 * gib / PerStream {
		b.BeginStream()
	}
	b.Weigh(0, 0)
	require.Equal(t, leastPause, b.Pause(), "streams")
	for range 2 * gib / PerStream {
		b.EndStream()
	}

	b.Weigh(b.limit/scarceOf*scarce-50_000_000, 0)
	require.Equal(t, 50*time.Millisecond, b.Pause(), "what is alive")
	b.Weigh(b.limit, 0)
	require.Equal(t, leastPause, b.Pause())
}
