package password

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// newTestQueue is one for a process that uses no time beside it.
func newTestQueue(parallel, waiting int) *Queue {
	return NewQueue(Config{Parallel: parallel, Waiting: waiting, Used: func() time.Duration { return 0 }, Secret: []byte("secret")})
}

func hashOf(t *testing.T, password string, cost int) []byte {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	require.NoError(t, err)
	return hash
}

// Right and wrong passwords, each asked twice, and again after it was changed.
func TestQueueMatches(t *testing.T) {
	q := newTestQueue(2, 10)
	first, second := hashOf(t, "a", 4), hashOf(t, "b", 4)
	for range 2 {
		for _, c := range []struct {
			hash     []byte
			password string
			want     bool
		}{{first, "a", true}, {first, "b", false}, {second, "a", false}, {second, "b", true}, {nil, "a", false}} {
			ok, err := q.Matches(t.Context(), c.hash, []byte(c.password))
			require.NoError(t, err)
			require.Equal(t, c.want, ok)
		}
	}
	hash, err := q.Generate(t.Context(), []byte("c"), []byte("0123456789abcdef"), 4)
	require.NoError(t, err)
	ok, err := q.Matches(t.Context(), hash, []byte("c"))
	require.NoError(t, err)
	require.True(t, ok)
}

// Clients of one user that come all at once cost one comparison.
func TestSharedComparison(t *testing.T) {
	q := newTestQueue(1, 1000)
	hash := hashOf(t, "x", 8)
	began := time.Now()
	_, err := q.Matches(t.Context(), hash, []byte("wrong"))
	require.NoError(t, err)
	one := time.Since(began)
	began = time.Now()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			ok, err := q.Matches(t.Context(), hash, []byte("x"))
			require.NoError(t, err)
			require.True(t, ok)
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 100*one, "one comparison takes %v", one)
}

// Those beyond the bound are refused at once, those whose clients have gone make room, and a
// comparison ends with its client.
func TestQueueIsBounded(t *testing.T) {
	q := newTestQueue(1, 2)
	hash := hashOf(t, "x", bcrypt.MinCost)
	copy(hash[4:], "31") // takes days
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := make(chan error, 3)
	for range 3 {
		go func() { _, err := q.Matches(ctx, hash, []byte("x")); ends <- err }()
	}
	for q.waiting.Load() < 3 {
		runtime.Gosched()
	}
	_, err := q.Matches(t.Context(), hash, []byte("x"))
	require.ErrorIs(t, err, ErrFull)
	cancel(gone)
	for range 3 {
		require.ErrorIs(t, <-ends, gone)
	}
	ok, err := q.Matches(t.Context(), hashOf(t, "x", 4), []byte("x"))
	require.NoError(t, err)
	require.True(t, ok)
}

// What is remembered is bounded.
func TestKnownIsBounded(t *testing.T) {
	k := known{secret: []byte("secret")}
	for i := range mostKnown + 100 {
		k.add(fmt.Append(nil, i), []byte("x"))
		require.True(t, k.has(fmt.Append(nil, i), []byte("x")))
	}
	require.Len(t, k.all, mostKnown)
}

// hashes runs steps of 100 µs, which take no longer, for a second, and returns how many there were.
func hashes(q *Queue, used *atomic.Int64) (steps int) {
	p := pacer{meter: &q.meter, began: time.Now(), now: &shared}
	for end := time.Now().Add(time.Second); time.Now().Before(end); steps++ {
		time.Sleep(100 * time.Microsecond)
		used.Add(int64(100 * time.Microsecond))
		p.step()
	}
	return steps
}

// A process that does nothing else hashes nearly all the time; one that does, a quarter of it.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		other       time.Duration // that others use in each millisecond
		least, most float64
	}{{0, 0.90, 0.99}, {20 * time.Microsecond, 0.90, 0.99}, {200 * time.Microsecond, 0.2, 0.3}, {time.Millisecond, 0.2, 0.3}} {
		synctest.Test(t, func(t *testing.T) {
			var used atomic.Int64
			q := NewQueue(Config{Parallel: 1, Waiting: 1, Used: func() time.Duration { return time.Duration(used.Load()) }})
			stop := make(chan struct{})
			go func() {
				for tick := time.NewTicker(time.Millisecond); ; {
					select {
					case <-tick.C:
						used.Add(int64(c.other))
					case <-stop:
						return
					}
				}
			}()
			hashes(q, &used)
			part := float64(hashes(q, &used)) / 10_000
			close(stop)
			require.Greater(t, part, c.least, "others %v", c.other)
			require.Less(t, part, c.most, "others %v", c.other)
		})
	}
}

// On a single core, another goroutine gets its turn, and the network is looked after, during a comparison.
func TestOthersRunMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q := newTestQueue(1, 1)
	hash := hashOf(t, "x", 10)
	done := make(chan bool)
	go func() { ok, _ := q.Matches(context.Background(), hash, []byte("x")); done <- ok }()
	for turns := 0; ; turns++ {
		select {
		case ok := <-done:
			require.True(t, ok)
			require.Greater(t, turns, 20)
			return
		default:
			time.Sleep(10 * time.Microsecond)
		}
	}
}
