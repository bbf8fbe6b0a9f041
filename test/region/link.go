package region

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Quality is how a link treats packets. The zero value is that of New.
type Quality struct {
	Cut       bool          // none arrives
	Delay     time.Duration // in addition to the one of New
	Jitter    time.Duration // in addition, drawn for each packet; packets stay in order
	Loss      float64       // the part of the packets that is lost
	Duplicate float64       // the part that arrives twice
}

// Link is one direction between two regions. Its quality may change at any time, from any
// goroutine; packets in flight keep their delay.
type Link struct {
	oneWay  time.Duration
	way     chan packet
	quality atomic.Pointer[Quality]
}

func newLink(oneWay time.Duration) *Link {
	l := &Link{oneWay: oneWay, way: make(chan packet, onTheWay)}
	l.Set(Quality{})
	return l
}

// Link is the one between two different regions, by their indexes.
func (w *World) Link(from, to int) *Link { return w.links[from][to] }

// Set changes the quality.
func (l *Link) Set(q Quality) { l.quality.Store(&q) }

// Heal gives all links the quality with which they began.
func (w *World) Heal() {
	for _, from := range w.links {
		for _, l := range from {
			if l != nil {
				l.Set(Quality{})
			}
		}
	}
}

// take takes a packet in, or drops it.
func (l *Link) take(p packet) bool {
	q := l.quality.Load()
	if q.Cut || q.Loss > 0 && rand.Float64() < q.Loss {
		return false
	}
	p.due = time.Now().Add(l.oneWay + q.Delay)
	if q.Jitter > 0 {
		p.due = p.due.Add(rand.N(q.Jitter))
	}
	select {
	case l.way <- p:
		return true
	default: // as by a full queue
		return false
	}
}

// copies is how often the next packet arrives: what is in flight when a link is cut is lost.
func (l *Link) copies() int {
	q := l.quality.Load()
	switch {
	case q.Cut:
		return 0
	case q.Duplicate > 0 && rand.Float64() < q.Duplicate:
		return 2
	}
	return 1
}
