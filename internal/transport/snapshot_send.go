package transport

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

const (
	chunkBytes = 256 << 10
	// A transfer without progress for that long, in units of Options.Silence,
	// fails. (How long the receiver may take after the last byte is up to the
	// caller's context.)
	stalledAfter = 10
)

var errStalled = errors.New("nothing has moved for too long")

// SendSnapshot sends h.Size bytes of r, and returns once the peer has installed
// them. It has a connection of its own.
func (t *Transport) SendSnapshot(ctx context.Context, to uint64, h *peerpb.SnapshotHeader, r io.Reader) error {
	p := t.peer(to)
	if p == nil {
		return fmt.Errorf("send snapshot: server %x is no peer", to)
	}
	m, name := t.o.Metrics, label(to)
	m.snapshotsSending.WithLabelValues(name).Inc()
	defer m.snapshotsSending.WithLabelValues(name).Dec()
	begin := time.Now()
	if err := p.sendSnapshot(ctx, h, r); err != nil {
		m.snapshotSendFailures.WithLabelValues(name).Inc()
		return fmt.Errorf("send snapshot to server %x: %w", to, err)
	}
	m.snapshotsSent.WithLabelValues(name).Inc()
	m.snapshotSendSeconds.WithLabelValues(name).Observe(time.Since(begin).Seconds())
	return nil
}

func (p *peer) sendSnapshot(ctx context.Context, h *peerpb.SnapshotHeader, r io.Reader) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer context.AfterFunc(p.life, func() { cut(context.Cause(p.life)) })()
	stalled := time.AfterFunc(stalledAfter*p.t.o.Silence, func() { cut(errStalled) })
	defer stalled.Stop()

	conn, err := p.lastGood().dial(p.t.o.Silence, pings) // the peer installs for as long as it takes
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := peerpb.NewPeerClient(conn).Install(metadata.NewOutgoingContext(ctx, p.t.identity(p.id)))
	if err != nil {
		return causeOr(ctx, err)
	}
	progress := func() { stalled.Reset(stalledAfter * p.t.o.Silence) }
	err = writeChunks(stream, h, r, progress)
	if err != nil && !errors.Is(err, io.EOF) {
		// Without this the receiver would see an orderly end of the stream.
		cut(err)
		return err
	}
	stalled.Stop()
	// Also after io.EOF from Send, which means that the answer is there.
	if _, err := stream.CloseAndRecv(); err != nil {
		return causeOr(ctx, err)
	}
	return nil
}

// lastGood is the address of the present link, or the one that was tried last.
func (p *peer) lastGood() addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linked != nil {
		return *p.linked
	}
	return p.addrs[max(0, p.next-1)%len(p.addrs)]
}

// writeChunks returns a bare io.EOF if the receiver has ended the transfer.
func writeChunks(stream grpc.ClientStreamingClient[peerpb.Chunk, peerpb.Installed], h *peerpb.SnapshotHeader, r io.Reader, progress func()) error {
	if err := stream.Send(&peerpb.Chunk{Header: h}); err != nil {
		return err
	}
	var sent uint64
	var total uint32
	table := crc32.MakeTable(crc32.Castagnoli)
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(r, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read at byte %d: %w", sent, err)
		}
		last := err != nil
		total = crc32.Update(total, table, buf[:n])
		sent += uint64(n)
		if last && sent != h.GetSize() {
			return fmt.Errorf("%d bytes were announced and %d read", h.GetSize(), sent)
		}
		// Send has encoded the chunk when it returns, so the buffer is free.
		err = stream.Send(&peerpb.Chunk{Data: buf[:n], Crc: crc32.Checksum(buf[:n], table), Last: last, TotalCrc: total})
		if err != nil {
			return err
		}
		progress()
		if last {
			return nil
		}
	}
}
