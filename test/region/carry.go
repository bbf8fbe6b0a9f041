package region

import (
	"context"
	"os"
	"sync"
	"time"
)

// packet is a packet in flight.
type packet struct {
	due    time.Time
	bytes  []byte
	buffer *[]byte
}

// onTheWay bounds the packets in flight in one direction; a window of TCP is
// far less.
const onTheWay = 1 << 16

// carry begins to move packets between the regions, until the world is closed.
func (w *World) carry(oneWay time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	buffers := &sync.Pool{New: func() any { b := make([]byte, mtu); return &b }}
	w.links = make([][]*Link, len(w.Regions))
	for i, from := range w.Regions {
		w.links[i] = make([]*Link, len(w.Regions))
		for j, to := range w.Regions {
			if i != j {
				l := newLink(oneWay)
				w.links[i][j] = l
				go deliver(ctx, to.device, l, buffers)
			}
		}
		go collect(from.device, w.links[i], buffers)
	}
}

// collect takes packets out of a region.
func collect(device *os.File, links []*Link, buffers *sync.Pool) {
	for {
		buffer := buffers.Get().(*[]byte)
		n, err := device.Read(*buffer)
		if err != nil {
			return
		}
		p := packet{bytes: (*buffer)[:n], buffer: buffer}
		to := -1
		if n >= 20 && p.bytes[0]>>4 == 4 { // IPv4: the destination 10.77.region.1
			to = int(p.bytes[18]) - 1
		}
		if to < 0 || to >= len(links) || links[to] == nil || !links[to].take(p) {
			buffers.Put(buffer)
		}
	}
}

// deliver brings packets into a region when their time has come.
func deliver(ctx context.Context, device *os.File, l *Link, buffers *sync.Pool) {
	for {
		select {
		case p := <-l.way:
			if wait := time.Until(p.due); wait > 0 {
				time.Sleep(wait)
			}
			for range l.copies() {
				if _, err := device.Write(p.bytes); err != nil && ctx.Err() != nil {
					return
				}
			}
			buffers.Put(p.buffer)
		case <-ctx.Done():
			return
		}
	}
}
