package raftwire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func optional[T any](g *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Custom(func(t *rapid.T) *T {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		v := g.Draw(t, "value")
		return &v
	})
}

func drawBytes(t *rapid.T) []byte {
	if rapid.Bool().Draw(t, "nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
}

func drawEntry(t *rapid.T) *raftpb.Entry {
	number := optional(rapid.Uint64())
	return &raftpb.Entry{
		Type:  optional(rapid.SampledFrom([]raftpb.EntryType{0, 1, 2})).Draw(t, "type"),
		Term:  number.Draw(t, "term"),
		Index: number.Draw(t, "index"),
		Data:  drawBytes(t),
	}
}

func drawMessage(t *rapid.T) *raftpb.Message {
	number := optional(rapid.Uint64())
	m := &raftpb.Message{
		Type:       optional(rapid.SampledFrom([]raftpb.MessageType{0, 3, 4, 5, 6, 7, 8, 9, 14, 17, 23, 1000})).Draw(t, "type"),
		To:         number.Draw(t, "to"),
		From:       number.Draw(t, "from"),
		Term:       number.Draw(t, "term"),
		LogTerm:    number.Draw(t, "log term"),
		Index:      number.Draw(t, "index"),
		Commit:     number.Draw(t, "commit"),
		Vote:       number.Draw(t, "vote"),
		Reject:     optional(rapid.Bool()).Draw(t, "reject"),
		RejectHint: number.Draw(t, "reject hint"),
		Context:    drawBytes(t),
	}
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		m.Entries = append(m.Entries, drawEntry(t))
	}
	if rapid.IntRange(0, 9).Draw(t, "with snapshot") == 0 {
		m.Snapshot = &raftpb.Snapshot{Data: drawBytes(t), Metadata: &raftpb.SnapshotMetadata{Index: number.Draw(t, "snapshot index")}}
	}
	if rapid.IntRange(0, 9).Draw(t, "from the future") == 0 {
		m.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // field 99, varint 1
	}
	return m
}

func TestEveryMessageIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			group uint32
			m     *raftpb.Message
		}
		var sent []item
		var wire [][]byte
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			it := item{rapid.Uint32().Draw(t, "group"), drawMessage(t)}
			sent = append(sent, it)
			wire = Append(wire, it.group, it.m)
		}
		for _, want := range sent {
			var group uint32
			var m *raftpb.Message
			var err error
			group, m, wire, err = Next(wire)
			require.NoError(t, err)
			require.Equal(t, want.group, group)
			require.True(t, proto.Equal(want.m, m), "sent %v, received %v", want.m, m)
		}
		require.Empty(t, wire)
	})
}

func TestTruncatedInputIsRefused(t *testing.T) {
	wire := Append(nil, 3, appendOf(2, 20))
	for n := range wire {
		_, _, _, err := Next(wire[:n])
		require.ErrorIs(t, err, ErrMalformed, "%d of %d strings", n, len(wire))
	}
	for n := range wire[0] {
		_, _, _, err := Next([][]byte{wire[0][:n], wire[1], wire[2]})
		require.ErrorIs(t, err, ErrMalformed, "%d of %d bytes", n, len(wire[0]))
	}
}

func TestEntryCountIsNotTrusted(t *testing.T) {
	// A mask with entries only, and a count of 2^40 in front of nothing.
	_, _, _, err := Next([][]byte{{0, 0x80, 0x20, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}})
	require.ErrorIs(t, err, ErrMalformed)
}

// Accepted input must be equal after encoding it again.
func FuzzNext(f *testing.F) {
	add := func(list [][]byte) { f.Add(join(list)) }
	add(Append(nil, 1, appendOf(3, 10)))
	add(Append(Append(nil, 0, heartbeat()), 7, answer()))
	add(Append(nil, 2, &raftpb.Message{Snapshot: &raftpb.Snapshot{Data: []byte("x")}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, wire []byte) {
		before := bytes.Clone(wire)
		for rest := split(wire); len(rest) > 0; {
			group, m, next, err := Next(rest)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				break
			}
			require.Less(t, len(next), len(rest))
			again, m2, tail, err := Next(Append(nil, group, m))
			require.NoError(t, err)
			require.Equal(t, group, again)
			require.Empty(t, tail)
			require.True(t, proto.Equal(m, m2))
			rest = next
		}
		require.Equal(t, before, wire)
	})
}

// join makes one string of a list, for the fuzzer, and split the list again.
func join(list [][]byte) (b []byte) {
	for _, s := range list {
		b = appendBytes(b, s)
	}
	return b
}

func split(b []byte) (list [][]byte) {
	for r := (reader{b: b}); len(r.b) > 0 && !r.bad; {
		list = append(list, r.bytes())
	}
	return list
}

func heartbeat() *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), To: proto.Uint64(0x8211f1d0f64f3269), From: proto.Uint64(0x91bc3c398fb3c146),
		Term: proto.Uint64(7), Commit: proto.Uint64(123456),
	}
}

func answer() *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), To: proto.Uint64(0x91bc3c398fb3c146), From: proto.Uint64(0x8211f1d0f64f3269),
		Term: proto.Uint64(7), Index: proto.Uint64(123457),
	}
}

func appendOf(entries, size int) *raftpb.Message {
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), To: proto.Uint64(0x8211f1d0f64f3269), From: proto.Uint64(0x91bc3c398fb3c146),
		Term: proto.Uint64(7), LogTerm: proto.Uint64(7), Index: proto.Uint64(123456), Commit: proto.Uint64(123450),
	}
	for i := range entries {
		m.Entries = append(m.Entries, &raftpb.Entry{
			Type: raftpb.EntryNormal.Enum(), Term: proto.Uint64(7), Index: proto.Uint64(123457 + uint64(i)), Data: make([]byte, size),
		})
	}
	return m
}

func BenchmarkCodec(b *testing.B) {
	for name, m := range map[string]*raftpb.Message{
		"heartbeat": heartbeat(), "answer": answer(), "append-1x300": appendOf(1, 300), "append-8x300": appendOf(8, 300),
	} {
		b.Run(name+"/raftwire", func(b *testing.B) {
			b.ReportAllocs()
			var buf, out peerpb.Batch
			var wire []byte
			for b.Loop() {
				buf.Raft = Append(buf.Raft[:0], 3, m)
				wire, _ = proto.MarshalOptions{}.MarshalAppend(wire[:0], &buf)
				if err := proto.Unmarshal(wire, &out); err != nil {
					b.Fatal(err)
				}
				if _, _, _, err := Next(out.Raft); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(wire)), "wire-B")
		})
		b.Run(name+"/protobuf", func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf, _ = proto.MarshalOptions{}.MarshalAppend(buf[:0], m)
				var out raftpb.Message
				if err := proto.Unmarshal(buf, &out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(buf)), "wire-B")
		})
	}
}

// Entries are copied neither by the sender nor by the receiver.
func TestEntriesAreNotCopied(t *testing.T) {
	want := appendOf(3, 50)
	wire := Append(nil, 1, want)
	_, m, _, err := Next(wire)
	require.NoError(t, err)
	require.True(t, proto.Equal(want, m))
	for i, e := range m.Entries {
		require.Same(t, &want.Entries[i].Data[0], &e.Data[0])
	}
}
