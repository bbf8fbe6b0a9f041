package node

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Work that many ask for at once is done by one at a time, with pauses in between.
func TestPacer(t *testing.T) {
	const each, n = 5 * time.Millisecond, 6
	var p pacer
	var all sync.WaitGroup
	var busy, most atomic.Int64
	began := time.Now()
	for range n {
		all.Go(func() {
			p.do(func() {
				most.Store(max(most.Load(), busy.Add(1)))
				time.Sleep(each)
				busy.Add(-1)
			})
		})
	}
	all.Wait()
	require.Equal(t, int64(1), most.Load())
	require.GreaterOrEqual(t, time.Since(began), n*each+(n-1)*3*each)
}
