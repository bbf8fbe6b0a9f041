package node

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

func numbered(i int) extension.SourceID { return extension.SourceOf(1, []byte{byte(i)}) }

// Sources that many ask for at once are compiled one at a time, with pauses in between.
func TestSourcesArePaced(t *testing.T) {
	const each, n = 5 * time.Millisecond, 6
	var a compilations
	var all sync.WaitGroup
	var busy, most atomic.Int64
	began := time.Now()
	for i := range n {
		all.Go(func() {
			require.NoError(t, a.do(numbered(i), func() error {
				most.Store(max(most.Load(), busy.Add(1)))
				time.Sleep(each)
				busy.Add(-1)
				return nil
			}))
		})
	}
	all.Wait()
	require.Equal(t, int64(1), most.Load())
	require.GreaterOrEqual(t, time.Since(began), n*each+(n-1)*3*each)
}

// Any number of requests for one source wait for it together; those for more sources than
// may wait are refused at once.
func TestRequestsForOneSourceShareItsTurn(t *testing.T) {
	var a compilations
	var all sync.WaitGroup
	var calls, same, refused atomic.Int64
	hold := make(chan struct{})
	ask := func(i int) {
		all.Go(func() {
			err := a.do(numbered(i), func() error { calls.Add(1); <-hold; return nil })
			if err != nil {
				require.ErrorIs(t, err, fault.TooManyRequests)
				refused.Add(1)
			} else if i == 0 {
				same.Add(1)
			}
		})
	}
	ask(0)
	require.Eventually(t, func() bool { return calls.Load() == 1 }, time.Minute, time.Millisecond)
	for range 100 {
		ask(0)
	}
	for i := range 100 {
		ask(1 + i)
	}
	require.Eventually(t, func() bool { return refused.Load() == 101-maxWaitingSources }, time.Minute, time.Millisecond)
	// One that asks later has a turn of its own.
	require.Eventually(t, func() bool { return sharing() == 100 }, time.Minute, 10*time.Millisecond)
	require.Zero(t, same.Load())
	close(hold)
	all.Wait()
	require.EqualValues(t, 101, same.Load())
	require.EqualValues(t, maxWaitingSources, calls.Load())
	require.Empty(t, a.waiting)
}

// sharing is how many goroutines wait for another one's turn.
func sharing() int {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("[chan receive]:\ngithub.com/stoa-kv/stoa/internal/node.(*compilations).do("))
}

// A compilation works for less than half a millisecond at a time, and for a quarter of it in all;
// nothing of this holds it up once apply waits for it.
func TestACompilationPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 20
		took := func(hurry chan struct{}, each time.Duration) time.Duration {
			began, pause := time.Now(), paceCompilation(hurry)
			for range pieces {
				time.Sleep(each)
				pause()
			}
			return time.Since(began)
		}
		hurry := make(chan struct{})
		require.Equal(t, pieces/2*4*compilePiece, took(hurry, compilePiece/2))
		require.Equal(t, pieces*(time.Second+longestPause), took(hurry, time.Second), "on a machine that is busy")
		const begun = 100 * time.Microsecond
		time.AfterFunc(compilePiece+begun, func() { close(hurry) })
		require.Equal(t, pieces*compilePiece+begun, took(hurry, compilePiece), "it ends the pause that is under way")
		require.Equal(t, pieces*time.Second, took(hurry, time.Second))
	})
}
