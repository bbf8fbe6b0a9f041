package raftlog

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/wal"
)

// The log's cost to a group's loop for each entry: appending it, encoding its
// record and the hard state's, and compacting it later.
func BenchmarkAppend(b *testing.B) {
	l := newLog()
	data := make([]byte, 300)
	var recs []wal.Record
	b.ReportAllocs()
	for i := uint64(2); b.Loop(); i++ {
		b.StopTimer()
		ents := []*pb.Entry{{Index: new(i), Term: new(uint64(1)), Data: data}}
		hs := state(1, 1, i-1)
		b.StartTimer()
		recs = l.AppendTo(recs[:0], hs, ents)
		if i%4096 == 0 {
			l.SetApplied(Position{i, 1})
			l.Shorten(Tail{Entries: 1000, Bytes: 1 << 30, Common: math.MaxUint64})
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	recs := newLog().Append(state(1, 1, 1), run(2, 10_001, 1))
	b.ReportAllocs()
	for b.Loop() {
		l := newLog()
		for _, r := range recs {
			if err := l.Replay(r); err != nil {
				b.Fatal(err)
			}
		}
		_, err := l.Recover(Position{5000, 1})
		require.NoError(b, err)
	}
}
