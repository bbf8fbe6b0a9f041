package sessionwire

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

func (c *ClientBatch) generated() *stoapb.ClientBatch {
	m := &stoapb.ClientBatch{Open: c.Open, Answered: c.Answered}
	for _, r := range c.Requests {
		m.Requests = append(m.Requests, &stoapb.Request{Seq: r.Seq, Kind: r.Kind, Level: r.Level, Revision: r.Revision, Body: r.Body})
	}
	return m
}

func (s *ServerBatch) generated() *stoapb.ServerBatch {
	m := &stoapb.ServerBatch{Opened: s.Opened, PartitionMap: s.PartitionMap}
	for _, r := range s.Replies {
		m.Replies = append(m.Replies, &stoapb.Reply{Seq: r.Seq, Event: r.Event, Code: r.Code, Message: r.Message, Body: r.Body, Revision: r.Revision})
	}
	return m
}

// same compares what two decoders made of the same bytes; the hand-written one
// keeps no unknown fields.
func same(t require.TestingT, want, got proto.Message) {
	known, err := proto.UnmarshalOptions{DiscardUnknown: true}, error(nil)
	b, err := proto.Marshal(want)
	require.NoError(t, err)
	proto.Reset(want)
	require.NoError(t, known.Unmarshal(b, want))
	b, err = proto.Marshal(got)
	require.NoError(t, err)
	proto.Reset(got)
	require.NoError(t, known.Unmarshal(b, got))
	require.True(t, proto.Equal(want, got), "generated %v, by hand %v", want, got)
}

func FuzzClientBatch(f *testing.F) {
	b, err := (&ClientBatch{
		Open: &stoapb.OpenSession{Session: 5, Client: "c"}, Answered: 7,
		Requests: []Request{{Seq: 1, Kind: stoapb.Kind_PUT, Body: []byte("x")}, {Seq: 1 << 40, Kind: -1, Level: 2, Revision: -1}},
	}).AppendTo(nil)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{0x1a, 2, 0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(stoapb.ClientBatch), ClientBatch{Requests: make([]Request, 1)}
		wanted, err := proto.Unmarshal(b, want), got.Decode(b)
		require.Equal(t, wanted == nil, err == nil, "generated: %v, by hand: %v", wanted, err)
		if err == nil {
			same(t, want, got.generated())
		}
	})
}

func FuzzServerBatch(f *testing.F) {
	b, err := (&ServerBatch{
		Opened: &stoapb.Opened{Session: 5}, PartitionMap: &stoapb.PartitionMap{Partitions: 2},
		Replies: []Reply{{Seq: 1, Event: true, Body: []byte("x")}, {Seq: 1 << 40, Code: 5, Message: "no", Revision: -1}},
	}).AppendTo(nil)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{0x12, 3, 0x22, 1, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(stoapb.ServerBatch), ServerBatch{}
		wanted, err := proto.Unmarshal(b, want), got.Decode(b)
		require.Equal(t, wanted == nil, err == nil, "generated: %v, by hand: %v", wanted, err)
		if err == nil {
			same(t, want, got.generated())
		}
	})
}

func TestHandWrittenEncodingMatchesGeneratedCode(t *testing.T) {
	body := rapid.SliceOfN(rapid.Byte(), 0, 300)
	codec := Codec()
	rapid.Check(t, func(t *rapid.T) {
		c := &ClientBatch{Answered: rapid.Uint64().Draw(t, "answered"), Requests: rapid.SliceOf(rapid.Custom(func(t *rapid.T) Request {
			return Request{
				Seq: rapid.Uint64().Draw(t, "seq"), Kind: stoapb.Kind(rapid.Int32().Draw(t, "kind")), Level: stoapb.Level(rapid.Int32Range(0, 2).Draw(t, "level")),
				Revision: rapid.Int64().Draw(t, "revision"), Body: body.Draw(t, "body"),
			}
		})).Draw(t, "requests")}
		if rapid.Bool().Draw(t, "open") {
			c.Open = &stoapb.OpenSession{Session: rapid.Int64().Draw(t, "session")}
		}
		through(t, codec, c, new(stoapb.ClientBatch), c.generated())

		s := &ServerBatch{Replies: rapid.SliceOf(rapid.Custom(func(t *rapid.T) Reply {
			return Reply{
				Seq: rapid.Uint64().Draw(t, "seq"), Event: rapid.Bool().Draw(t, "event"), Code: rapid.Uint32().Draw(t, "code"),
				Message: rapid.String().Draw(t, "message"), Revision: rapid.Int64().Draw(t, "revision"), Body: body.Draw(t, "body"),
			}
		})).Draw(t, "replies")}
		through(t, codec, s, new(stoapb.ServerBatch), s.generated())
	})
}

// through sends a batch through the codec and compares what generated code reads.
func through(t require.TestingT, codec interface {
	Marshal(any) (mem.BufferSlice, error)
	Unmarshal(mem.BufferSlice, any) error
}, batch any, into, want proto.Message) {
	data, err := codec.Marshal(batch)
	require.NoError(t, err)
	var got Received
	require.NoError(t, codec.Unmarshal(data, &got))
	require.NoError(t, codec.Unmarshal(data, into))
	data.Free()
	require.True(t, proto.Equal(want, into))
	require.NoError(t, proto.Unmarshal(got.Bytes, into), "what was received is the receiver's own")
	require.True(t, proto.Equal(want, into))
}

func BenchmarkDecode64Requests(b *testing.B) {
	c := &ClientBatch{}
	for i := range uint64(64) {
		c.Requests = append(c.Requests, Request{Seq: 1<<20 + i, Kind: stoapb.Kind_PUT, Body: make([]byte, 300)})
	}
	raw, _ := c.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
