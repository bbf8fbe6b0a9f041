package h2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2/hpack"
)

// FuzzHeaderBlock decodes blocks one after the other as x/net does: the same fields, and the same
// blocks refused.
func FuzzHeaderBlock(f *testing.F) {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for i := range 3 {
		for _, v := range []string{"a", "grpc-timeout", ":path", strings.Repeat("x", 300)} {
			_ = e.WriteField(hpack.HeaderField{Name: v, Value: fmt.Sprint(v, i), Sensitive: i == 2})
		}
		f.Add([]byte(b.String()), uint8(20*i))
	}
	f.Add([]byte("\x20\x3f\xe1\x1f\x82\x40\x01a\x01b\xbe"), uint8(3))
	f.Add([]byte("\x82\x20"), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		own := table{limit: tableSize, longest: 1 << 10}
		theirs := hpack.NewDecoder(tableSize, nil)
		theirs.SetMaxStringLength(1 << 10)
		for len(b) > 0 {
			n := min(int(cut)+1, len(b))
			var got, want []string
			err := own.fields(b[:n], func(e entry) { got = append(got, e.name+": "+e.value) })
			theirs.SetEmitFunc(func(f hpack.HeaderField) { want = append(want, f.Name+": "+f.Value) })
			_, expected := theirs.Write(b[:n])
			if expected == nil {
				expected = theirs.Close()
			}
			switch {
			case err == errInteger && expected == nil:
				return // RFC 7541 §5.1: encodings that exceed an implementation's limits are errors
			case err == errResize || expected != nil && strings.Contains(expected.Error(), "MUST occur at the beginning"):
				return // x/net refuses the second of two that may follow each other (§4.2), and takes late ones if the table is empty
			}
			require.Equal(t, expected != nil, err != nil, "%v instead of %v", err, expected)
			if err != nil {
				return
			}
			require.Equal(t, want, got)
			b = b[n:]
		}
	})
}

// Fields with the same content have the same id until the ids are given anew, and those of
// different content never.
func TestFieldIDs(t *testing.T) {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	own := table{limit: tableSize, longest: 1 << 16}
	ids, epoch := map[string]byte{}, 0
	again := 0
	for i := range 5000 {
		b.Reset()
		name := fmt.Sprint("name-", i*i%300)
		fields := []hpack.HeaderField{{Name: "x", Value: "POST"}, {Name: name, Value: strings.Repeat("x", i%7*500)}, {Name: "grpc-timeout", Value: fmt.Sprint(i, "m")}}
		for _, f := range fields {
			f.Sensitive = i%3 == 0
			require.NoError(t, e.WriteField(f))
		}
		n, now := 0, map[string]byte{}
		require.NoError(t, own.fields([]byte(b.String()), func(e entry) {
			require.Equal(t, fields[n].Name, e.name)
			require.Equal(t, fields[n].Value, e.value)
			if n++; e.name == "grpc-timeout" {
				require.EqualValues(t, timeoutID, e.id)
			} else if e.id != 0 {
				now[e.name+e.value] = e.id
			}
		}))
		require.Equal(t, 3, n)
		if own.epoch != epoch {
			epoch, ids = own.epoch, map[string]byte{}
			continue
		}
		for content, id := range now {
			if have, ok := ids[content]; ok {
				again++
				require.Equal(t, have, id)
			}
			for other, have := range ids {
				require.False(t, have == id && other != content)
			}
			ids[content] = id
		}
	}
	require.NotZero(t, epoch)
	require.Greater(t, again, 1000)
}

// BenchmarkHeaders decodes the headers of calls with deadlines that differ.
func BenchmarkHeaders(b *testing.B) {
	c := newConn(NewServer(Options{}), nil, func() {})
	c.base = b.Context()
	c.headers.init(c)
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	blocks := make([]string, 0, 10_000)
	for i := range cap(blocks) {
		block.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/etcdserverpb.KV/Range"}, {":authority", "127.0.0.1:2379"},
			{"content-type", "application/grpc"}, {"user-agent", "grpc-go/1.85.0"}, {"te", "trailers"}, {"grpc-timeout", fmt.Sprint(4_999_999-7*i, "u")}} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		blocks = append(blocks, block.String())
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%len(blocks) == 0 { // the encoder's table begins anew
			c.headers = headers{}
			c.headers.init(c)
		}
		if _, _, err := c.headers.decode([]byte(blocks[n%len(blocks)])); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
