package transport

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func header(size int) *peerpb.SnapshotHeader {
	return &peerpb.SnapshotHeader{Size: uint64(size), Positions: []*peerpb.Position{{Group: 0, Index: 10, Term: 2}, {Group: 1, Index: 7, Term: 3}}}
}

// keep makes the server's handler read snapshots into memory; each result is
// sent on the channel.
func (s *server) keep() <-chan result {
	done := make(chan result, 10)
	s.install = func(_ context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error {
		data, err := io.ReadAll(r)
		done <- result{from, h, data, err}
		return err
	}
	return done
}

type result struct {
	from   uint64
	header *peerpb.SnapshotHeader
	data   []byte
	err    error
}

// requireNoneComplete allows for a transfer that broke before the handler was
// called.
func requireNoneComplete(t *testing.T, done <-chan result) {
	t.Helper()
	select {
	case got := <-done:
		require.Error(t, got.err)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestSnapshotArrivesComplete(t *testing.T) {
	servers := cluster(t, 2, nil)
	done := servers[2].keep()
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 77} {
		data := random(size)
		h := header(size)
		require.NoError(t, servers[1].SendSnapshot(t.Context(), 2, h, iotest.OneByteReader(bytes.NewReader(data))), "%d bytes", size)
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, uint64(1), got.from)
		require.True(t, proto.Equal(h, got.header))
		require.True(t, bytes.Equal(data, got.data), "%d bytes", size)
	}
}

func TestSenderHearsWhyInstallingFailed(t *testing.T) {
	servers := cluster(t, 2, nil)
	servers[2].install = func(context.Context, uint64, *peerpb.SnapshotHeader, io.Reader) error {
		return errors.New("the disk is full")
	}
	data := random(20 * chunkBytes)
	err := servers[1].SendSnapshot(t.Context(), 2, header(len(data)), bytes.NewReader(data))
	require.ErrorContains(t, err, "the disk is full")
}

func TestHalfReadSnapshotIsNotInstalled(t *testing.T) {
	servers := cluster(t, 2, nil)
	servers[2].install = func(_ context.Context, _ uint64, _ *peerpb.SnapshotHeader, r io.Reader) error {
		_, err := io.ReadFull(r, make([]byte, 10))
		return err
	}
	for _, size := range []int{100, 3 * chunkBytes} {
		require.ErrorContains(t, servers[1].SendSnapshot(t.Context(), 2, header(size), bytes.NewReader(random(size))), "not read to its end")
	}
}

func TestSourceThatFailsIsNotMistakenForAnEnd(t *testing.T) {
	servers := cluster(t, 2, nil)
	done := servers[2].keep()
	data := random(2 * chunkBytes)
	boom := errors.New("boom")
	err := servers[1].SendSnapshot(t.Context(), 2, header(len(data)), io.MultiReader(bytes.NewReader(data[:chunkBytes]), iotest.ErrReader(boom)))
	require.ErrorIs(t, err, boom)
	requireNoneComplete(t, done)

	for _, announced := range []int{len(data) - 1, len(data) + 1} {
		require.ErrorContains(t, servers[1].SendSnapshot(t.Context(), 2, header(announced), bytes.NewReader(data)), "announced")
		requireNoneComplete(t, done)
	}
}

func TestBrokenConnectionIsNotAnEnd(t *testing.T) {
	l := listen(t, "")
	p := newProxy(t, l.Addr().String())
	a := start(t, setup{id: 1, peers: map[uint64]string{2: p.url()}})
	b := startOn(t, l, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}})
	a.awaitLink(t, 2)
	done := b.keep()
	data := random(40 * chunkBytes)
	p.mu.Lock()
	p.passed, p.limit = 0, len(data)/2
	p.mu.Unlock()
	require.Error(t, a.SendSnapshot(t.Context(), 2, header(len(data)), bytes.NewReader(data)))
	got := <-done
	require.Error(t, got.err)
	require.NotErrorIs(t, got.err, io.EOF)
	require.Less(t, len(got.data), len(data))

	p.mu.Lock()
	p.limit = 0
	p.mu.Unlock()
	a.awaitLink(t, 2)
	require.NoError(t, a.SendSnapshot(t.Context(), 2, header(len(data)), bytes.NewReader(data)))
	require.True(t, bytes.Equal(data, (<-done).data))
}

func TestStalledSnapshotIsGivenUp(t *testing.T) {
	l := listen(t, "")
	p := newProxy(t, l.Addr().String())
	a := start(t, setup{id: 1, peers: map[uint64]string{2: p.url()}, silence: 100 * time.Millisecond})
	b := startOn(t, l, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, silence: 100 * time.Millisecond})
	a.awaitLink(t, 2)
	done := b.keep()
	stuck := make(chan struct{})
	defer close(stuck)
	source := io.MultiReader(bytes.NewReader(random(2*chunkBytes)), readerFunc(func([]byte) (int, error) {
		<-stuck
		return 0, io.EOF
	}))
	go a.SendSnapshot(t.Context(), 2, header(4*chunkBytes), source)
	// Either side may be the first to time out.
	got := <-done
	require.Error(t, got.err)
	require.NotErrorIs(t, got.err, io.EOF)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSnapshotEndsWithTheTransport(t *testing.T) {
	servers := cluster(t, 2, nil)
	done := servers[2].keep()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() { sent <- servers[1].SendSnapshot(context.Background(), 2, header(1<<20), r) }()
	w.Write(random(chunkBytes))
	eventually(t, func() bool { return len(servers[1].logs.All()) > 0 }, "under way")
	servers[2].Transport.Close()
	select {
	case got := <-done:
		require.Error(t, got.err)
	default: // it had not begun
	}
	w.CloseWithError(io.ErrClosedPipe)
	require.Error(t, <-sent)
	require.ErrorContains(t, servers[1].SendSnapshot(t.Context(), 9, header(0), r), "no peer")
}

// A sender of invalid chunks.
func TestDamagedChunksAreRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	require.NoError(t, a.UpdatePeer(2, []string{"http://127.0.0.1:1"}))
	done := a.keep()
	data := random(1000)
	crc := func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
	good := func() []*peerpb.Chunk {
		return []*peerpb.Chunk{
			{Header: header(1000)},
			{Data: bytes.Clone(data[:600]), Crc: crc(data[:600])},
			{Data: bytes.Clone(data[600:]), Crc: crc(data[600:]), Last: true, TotalCrc: crc(data)},
		}
	}
	for name, damage := range map[string]func(c []*peerpb.Chunk) []*peerpb.Chunk{
		"a flipped bit":      func(c []*peerpb.Chunk) []*peerpb.Chunk { c[1].Data[17] ^= 4; return c },
		"a lost chunk":       func(c []*peerpb.Chunk) []*peerpb.Chunk { return []*peerpb.Chunk{c[0], c[2]} },
		"a doubled chunk":    func(c []*peerpb.Chunk) []*peerpb.Chunk { return []*peerpb.Chunk{c[0], c[1], c[1], c[2]} },
		"a wrong total":      func(c []*peerpb.Chunk) []*peerpb.Chunk { c[2].TotalCrc++; return c },
		"a wrong size":       func(c []*peerpb.Chunk) []*peerpb.Chunk { c[0].Header.Size++; return c },
		"swapped chunks":     func(c []*peerpb.Chunk) []*peerpb.Chunk { c[1].Data, c[2].Data = c[2].Data, c[1].Data; return c },
		"no header":          func(c []*peerpb.Chunk) []*peerpb.Chunk { return c[1:] },
		"data in the header": func(c []*peerpb.Chunk) []*peerpb.Chunk { c[0].Data = data; return c },
	} {
		t.Run(name, func(t *testing.T) {
			err := installWith(t, a, damage(good()))
			require.Equal(t, codes.DataLoss, status.Code(err), "%v", err)
			if name != "no header" && name != "data in the header" {
				require.ErrorIs(t, (<-done).err, ErrSnapshotDamaged)
			}
		})
	}
	err := installWith(t, a, good()[:2]) // an orderly end without a last chunk
	require.Error(t, err)
	require.ErrorIs(t, (<-done).err, io.ErrUnexpectedEOF)
	require.NoError(t, installWith(t, a, good()))
	require.Equal(t, data, (<-done).data)
}

func installWith(t *testing.T, s *server, chunks []*peerpb.Chunk) error {
	md := s.identity(s.o.ID)
	md.Set(keyFrom, "2")
	stream, err := client(t, s).Install(metadata.NewOutgoingContext(t.Context(), md))
	require.NoError(t, err)
	for _, c := range chunks {
		if stream.Send(c) != nil {
			break
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

// For any chunks, a reader that ends with io.EOF has read the data that was
// sent.
func FuzzChunks(f *testing.F) {
	f.Add([]byte{3, 0, 1, 2}, []byte("hello"), uint8(0))
	f.Add([]byte{1, 1}, []byte("x"), uint8(9))
	f.Fuzz(func(t *testing.T, cuts, data []byte, flip uint8) {
		table := crc32.MakeTable(crc32.Castagnoli)
		var chunks []*peerpb.Chunk
		for rest := data; ; {
			n := len(rest)
			if len(cuts) > 0 {
				n, cuts = min(n, int(cuts[0])), cuts[1:]
			}
			c := &peerpb.Chunk{Data: bytes.Clone(rest[:n]), Crc: crc32.Checksum(rest[:n], table)}
			rest = rest[n:]
			chunks = append(chunks, c)
			if len(rest) == 0 {
				c.Last, c.TotalCrc = true, crc32.Checksum(data, table)
				break
			}
		}
		damaged := false
		if c := chunks[int(flip)%len(chunks)]; flip > 0 && len(c.Data) > 0 {
			c.Data[int(flip)%len(c.Data)] ^= flip
			damaged = true
		}
		recv := func() (*peerpb.Chunk, error) {
			if len(chunks) == 0 {
				return nil, io.EOF
			}
			c := chunks[0]
			chunks = chunks[1:]
			return c, nil
		}
		r := newChunkReader(t.Context(), recv, time.Hour) // no reader is late that has to wait for the processor
		r.size = uint64(len(data))
		got, err := io.ReadAll(r)
		if damaged {
			require.ErrorIs(t, err, ErrSnapshotDamaged)
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
	})
}
