package transport

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// ErrSnapshotDamaged is inside the error of a snapshot's reader if what arrived
// is not what was sent.
var ErrSnapshotDamaged = errors.New("snapshot damaged on the way")

// Install serves a peer that sends a snapshot.
func (t *Transport) Install(stream grpc.ClientStreamingServer[peerpb.Chunk, peerpb.Installed]) error {
	from, err := t.admit(stream.Context())
	if err != nil {
		t.logRefusal(stream.Context(), err)
		return err
	}
	defer t.running.Done()
	if err := t.met(stream.Context(), from.who); err != nil {
		err = refusal(err)
		t.logRefusal(stream.Context(), err)
		return err
	}
	p, m, name := from.peer, t.o.Metrics, label(from.peer.id)
	m.snapshotsReceiving.WithLabelValues(name).Inc()
	defer m.snapshotsReceiving.WithLabelValues(name).Dec()
	begin := time.Now()
	if err := p.install(stream); err != nil {
		m.snapshotReceiveFailures.WithLabelValues(name).Inc()
		p.log.Warn("could not install a snapshot from the peer", zap.Error(err))
		code := codes.Unknown
		if errors.Is(err, ErrSnapshotDamaged) {
			code = codes.DataLoss
		}
		return status.Error(code, err.Error())
	}
	m.snapshotsReceived.WithLabelValues(name).Inc()
	m.snapshotReceiveSeconds.WithLabelValues(name).Observe(time.Since(begin).Seconds())
	return stream.SendAndClose(&peerpb.Installed{})
}

func (p *peer) install(stream grpc.ClientStreamingServer[peerpb.Chunk, peerpb.Installed]) error {
	ctx, cut := context.WithCancelCause(stream.Context())
	defer cut(nil)
	defer context.AfterFunc(p.life, func() { cut(context.Cause(p.life)) })()
	r := newChunkReader(ctx, stream.Recv, stalledAfter*p.t.o.Silence)
	head, err := r.next()
	if err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	if head.Header == nil || len(head.Data) > 0 {
		return fmt.Errorf("%w: it begins without a header", ErrSnapshotDamaged)
	}
	r.size = head.Header.Size
	if err := p.t.o.Handler.InstallSnapshot(ctx, p.id, head.Header, r); err != nil {
		return err
	}
	if !r.whole || len(r.rest) > 0 {
		return errors.New("the snapshot was not read to its end")
	}
	return nil
}

// chunkReader reads the data of a snapshot's chunks and answers io.EOF only
// when all of it was there and right.
type chunkReader struct {
	ctx     context.Context
	chunks  chan received
	stalled time.Duration
	table   *crc32.Table

	size  uint64 // announced
	got   uint64
	total uint32
	rest  []byte // of the present chunk
	whole bool
	err   error // sticky
}

type received struct {
	chunk *peerpb.Chunk
	err   error
}

// newChunkReader reads one chunk ahead in a goroutine of its own, because a
// read from a gRPC stream has no deadline. It ends with the stream or with ctx.
func newChunkReader(ctx context.Context, recv func() (*peerpb.Chunk, error), stalled time.Duration) *chunkReader {
	r := &chunkReader{ctx: ctx, chunks: make(chan received), stalled: stalled, table: crc32.MakeTable(crc32.Castagnoli)}
	go func() {
		for {
			c, err := recv()
			select {
			case r.chunks <- received{c, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

func (r *chunkReader) next() (*peerpb.Chunk, error) {
	timeout := time.NewTimer(r.stalled)
	defer timeout.Stop()
	select {
	case got := <-r.chunks:
		if got.err == io.EOF {
			// The stream has ended in order, but before the last chunk.
			return nil, io.ErrUnexpectedEOF
		}
		return got.chunk, got.err
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	case <-timeout.C:
		return nil, errStalled
	}
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		if r.whole {
			return 0, io.EOF
		}
		r.err = r.advance()
	}
	if r.err != nil {
		return 0, fmt.Errorf("receive snapshot at byte %d: %w", r.got, r.err)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// advance takes in the next chunk, after which the data so far is known to be
// right, and after the last of which it is known to be all.
func (r *chunkReader) advance() error {
	c, err := r.next()
	if err != nil {
		return err
	}
	if crc32.Checksum(c.Data, r.table) != c.Crc {
		return fmt.Errorf("%w: wrong checksum of a chunk of %d bytes", ErrSnapshotDamaged, len(c.Data))
	}
	r.total = crc32.Update(r.total, r.table, c.Data)
	r.got += uint64(len(c.Data))
	if r.got > r.size || c.Last && r.got != r.size {
		return fmt.Errorf("%w: %d bytes were announced and %d have come", ErrSnapshotDamaged, r.size, r.got)
	}
	if c.Last && r.total != c.TotalCrc {
		return fmt.Errorf("%w: wrong checksum of the whole", ErrSnapshotDamaged)
	}
	r.rest, r.whole = c.Data, c.Last
	return nil
}
