package node

import (
	"sync"
	"time"
)

// pacer does work that takes the processor one piece at a time, and leaves three
// quarters of the time to others: however many clients send sources to be compiled, and
// however large they are, requests go on. The zero pacer is ready.
type pacer struct{ busy sync.Mutex }

// do waits for its turn and returns when the work is done; the next has to wait three
// times as long as that took.
func (p *pacer) do(work func()) {
	p.busy.Lock()
	began := time.Now()
	defer func() { time.AfterFunc(3*time.Since(began), p.busy.Unlock) }()
	work()
}
