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

// carry begins to move packets between the regions, until ctx ends and the devices are
// closed.
func (w *World) carry(ctx context.Context, oneWay time.Duration) {
	buffers := &sync.Pool{New: func() any { b := make([]byte, mtu); return &b }}
	for i, from := range w.Regions {
		ways := make([]chan packet, len(w.Regions))
		for j, to := range w.Regions {
			if i != j {
				ways[j] = make(chan packet, onTheWay)
				go deliver(ctx, to.device, ways[j], buffers)
			}
		}
		go collect(from.device, ways, buffers, oneWay)
	}
}

// collect takes packets out of a region.
func collect(device *os.File, ways []chan packet, buffers *sync.Pool, oneWay time.Duration) {
	for {
		buffer := buffers.Get().(*[]byte)
		n, err := device.Read(*buffer)
		if err != nil {
			return
		}
		p := packet{due: time.Now().Add(oneWay), bytes: (*buffer)[:n], buffer: buffer}
		to := -1
		if n >= 20 && p.bytes[0]>>4 == 4 { // IPv4: the destination 10.77.region.1
			to = int(p.bytes[18]) - 1
		}
		if to < 0 || to >= len(ways) || ways[to] == nil {
			buffers.Put(buffer)
			continue
		}
		select {
		case ways[to] <- p:
		default: // dropped, as by a full queue
			buffers.Put(buffer)
		}
	}
}

// deliver brings packets into a region when their time has come.
func deliver(ctx context.Context, device *os.File, way <-chan packet, buffers *sync.Pool) {
	for {
		select {
		case p := <-way:
			if wait := time.Until(p.due); wait > 0 {
				time.Sleep(wait)
			}
			if _, err := device.Write(p.bytes); err != nil && ctx.Err() != nil {
				return
			}
			buffers.Put(p.buffer)
		case <-ctx.Done():
			return
		}
	}
}
