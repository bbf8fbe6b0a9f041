package rpc

import "sync"

// Every call runs on a goroutine of its own. Go gives a new goroutine a stack of
// the size that goroutines were found to use on average at the last garbage
// collection; the readers and writers of idle connections use little, so that
// average falls to the minimum and each call has to grow its stack on the way,
// which copies it. That was 10 to 20 % of a server's CPU. A few hundred parked
// goroutines that use as much as a call does hold the average up, for 8 KiB
// each and a quarter of a millisecond more in a garbage collection. (grpc's own
// pool of workers costs more than it saves here: while calls wait for the log
// they need one worker each, and the pool always takes the coldest.)
const (
	parkedStacks = 512
	parkedDepth  = 6 // KiB
)

// parkStacks parks the goroutines; the function that it returns ends them.
func parkStacks() (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range parkedStacks {
		wg.Go(func() { park(parkedDepth, stop) })
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

//go:noinline
func park(depth int, stop chan struct{}) byte {
	var frame [1024]byte
	if depth > 0 {
		frame[depth] = park(depth-1, stop)
	} else {
		<-stop
	}
	return frame[stackIndex(depth)]
}

// stackIndex keeps the compiler from doing without the frame.
//
//go:noinline
func stackIndex(depth int) int { return depth }
