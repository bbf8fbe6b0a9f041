package wal

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendRecord(nil, &Record{Group: 3, Kind: 16, Index: 300, Note: 2, Data: []byte("abc")}))
	f.Add(appendRecord(nil, &Record{Group: 1<<32 - 1, Kind: 255, Index: 1<<64 - 1, Note: 1<<64 - 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, left, err := decodeRecord(append(appendRecord(nil, &r), rest...))
		require.NoError(t, err)
		require.Equal(t, show(r), show(again))
		require.Equal(t, rest, left)
	})
}

func FuzzDecodeFrameHead(f *testing.F) {
	b, _ := finishFrame(append(make([]byte, frameHeadBytes), "records"...), frameRecords, 5, 6, 400)
	f.Add(b, uint32(5))
	f.Fuzz(func(t *testing.T, b []byte, seed uint32) {
		if frame, ok := decodeFrameHead(b, seed); ok {
			require.Positive(t, frame.size())
			require.GreaterOrEqual(t, frame.durable, int64(0))
		}
	})
}

func FuzzDecodeSegmentHead(f *testing.F) {
	h := segmentHead{number: 3, size: 4096, prevEnd: 4000, prevChain: 77, metadata: []byte("who")}
	b, _ := h.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, seed, err := decodeSegmentHead(b)
		if err != nil {
			return
		}
		again, same := h.encode()
		require.Equal(t, seed, same)
		require.Equal(t, b[:fixedHeadBytes+len(h.metadata)], again[:fixedHeadBytes+len(h.metadata)])
	})
}

// FuzzOpen puts patches of any bytes on a log of two segments. Open may refuse
// it, but what it replays was appended, and the next Open replays the same.
func FuzzOpen(f *testing.F) {
	f.Add(uint16(100), []byte{1, 2, 3}, uint16(900), []byte{0, 0, 0, 0})
	f.Add(uint16(0), []byte("stoawal\x02"), uint16(0), []byte{})
	f.Add(uint16(24), []byte{255, 255, 255, 255, 255, 255, 255, 255}, uint16(24), []byte{255})
	f.Fuzz(func(t *testing.T, at1 uint16, patch1 []byte, at2 uint16, patch2 []byte) {
		x := newFixture(t)
		w := x.open()
		appended := map[string]bool{}
		for i := range 12 {
			r := rec(uint32(i%3), uint64(i+1), string(make([]byte, 100)))
			appended[show(r)] = true
			put(t, w, r)
		}
		x.fs = x.fs.Restart()
		_, err := x.file(1).WriteAt(patch1, int64(at1))
		require.NoError(t, err)
		_, err = x.file(2).WriteAt(patch2, int64(at2))
		require.NoError(t, err)

		if _, err := x.tryOpen(); err != nil {
			var d *DamageError
			require.True(t, errors.As(err, &d) || errors.Is(err, ErrMetadataMismatch), err)
			return
		}
		first := x.got
		for _, s := range first {
			require.True(t, appended[s], s)
		}
		x.restart()
		require.Equal(t, first, x.got)
		require.NoError(t, Inspect(x.fs, testDir, Inspection{
			Segment: func(SegmentInfo) error { return nil },
			Frame:   func(FrameInfo, []Record) error { return nil },
			Torn:    func(string, int64, int64, string) error { return errors.New("torn after a repair") },
		}))
	})
}
