package h2_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/stoa-kv/stoa/internal/h2"
)

// BenchmarkCalls is 100 empty calls at once, over and over: without deadlines, and with deadlines
// that differ, as those of clients do.
func BenchmarkCalls(b *testing.B) {
	for _, deadlines := range []bool{false, true} {
		b.Run(fmt.Sprintf("deadlines=%v", deadlines), func(b *testing.B) {
			r := newRig(b, h2.Options{})
			w := dialWire(b, r.addr)
			f := http2.NewFramer(io.Discard, w.Conn)
			id, timeout := uint32(1), 4_999_999
			batch := func() {
				all := frames(func(f *http2.Framer) {
					for range 100 {
						var more []string
						if deadlines {
							timeout -= 7
							more = []string{"grpc-timeout", fmt.Sprintf("%du", timeout)}
						}
						_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block("EmptyCall", more...), EndHeaders: true})
						_ = f.WriteData(id, true, make([]byte, 5))
						id += 2
					}
					_ = f.WriteWindowUpdate(0, 100*5) // for the answers
				})
				_, err := w.Conn.Write(all)
				require.NoError(b, err)
				for ended := 0; ended < 100; {
					got, err := f.ReadFrame()
					require.NoError(b, err)
					if h, ok := got.(*http2.HeadersFrame); ok && h.StreamEnded() {
						ended++
					}
				}
			}
			batch()
			b.ReportAllocs()
			before, n := cpu(), 0
			for b.Loop() {
				batch()
				n += 100
			}
			b.ReportMetric(float64(cpu()-before)/float64(n), "CPU-ns/call")
		})
	}
}
