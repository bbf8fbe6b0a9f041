package rpc

import (
	"bytes"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// rangeChunk is a RangeStreamResponse.
type rangeChunk struct{ *kvwire.RangeResponse }

// firstChunk is how many keys the first chunk of a stream holds, as in etcd:
// few, because nothing is known yet about their size.
const firstChunk = 10

// RangeStream answers a Range in chunks, all of them at the revision of the
// first. Only the last chunk has the header, the count and more; merging the
// chunks makes the answer that Range would have given.
func (s *kvServer) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	switch {
	case r.CountOnly:
		return s.streamCount(r, stream)
	case r.SortTarget != pb.RangeRequest_KEY:
		return s.streamSorted(r, stream)
	}
	return s.streamKeys(r, stream)
}

func (s *kvServer) streamKeys(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	var (
		key, rev     = r.Key, r.Revision
		serializable = r.Serializable
		size         = int64(firstChunk)
		ctx          = stream.Context()
		read         = s.kv.Range
		sent, total  int64
		head         *pb.ResponseHeader
		fences       = s.kv.Fences()
	)
	for {
		limit := size
		if r.Limit > 0 {
			limit = min(limit, r.Limit-sent)
		}
		chunk := &pb.RangeRequest{
			Key: key, RangeEnd: r.RangeEnd, Limit: limit, Revision: rev, KeysOnly: r.KeysOnly, Serializable: serializable,
		}
		resp, err := read(ctx, chunk)
		if head != nil && errors.Is(err, fault.FutureRevision) { // a snapshot has taken this server back meanwhile
			chunk.Serializable = false
			resp, err = read(ctx, chunk)
		}
		if err == nil && s.kv.Fences() != fences { // the chunks before may be of a state that was wrong
			err = fault.Fenced
		}
		if err != nil {
			return toStatus(err)
		}
		if resp.Header == nil {
			return errNoHeader
		}
		if head == nil {
			head, total = resp.Header, resp.Count
			s.identify(head)
			if rev == 0 {
				rev = head.Revision
			}
			// From here on every chunk is at a revision that this server has:
			// asking the others again would change nothing.
			serializable = true
			read = s.kv.RangeOn // all chunks are one request
		}
		sent += int64(len(resp.Kvs))
		out := &kvwire.RangeResponse{Kvs: resp.Kvs}
		last := !resp.More || r.Limit > 0 && sent >= r.Limit
		if last {
			out.Header, out.More, out.Count = head, resp.More, total
		}
		if err := s.sendChunk(stream, out); err != nil || last {
			return err
		}
		key = append(bytes.Clone(resp.Kvs[len(resp.Kvs)-1].Key()), 0)
		size = nextChunk(limit, resp.Size(), s.chunk)
	}
}

func (s *kvServer) streamCount(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	resp, err := s.kv.Range(stream.Context(), r)
	if err != nil {
		return toStatus(err)
	}
	if resp.Header == nil {
		return errNoHeader
	}
	s.identify(resp.Header)
	return stream.SendMsg(rangeChunk{&kvwire.RangeResponse{Header: resp.Header, Count: resp.Count}})
}

// streamSorted answers in one piece what is to be ordered by something else than
// the key: no part of it is known before all is.
func (s *kvServer) streamSorted(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	resp, err := s.find(stream.Context(), r)
	if err != nil {
		return err
	}
	return s.sendChunk(stream, resp)
}

// sendChunk refuses a chunk for which there is no memory.
func (s *kvServer) sendChunk(stream grpc.ServerStream, resp *kvwire.RangeResponse) error {
	return send(stream, s.memory, rangeChunk{resp}, resp.Size(), rpctypes.ErrGRPCRequestTooManyRequests)
}

// nextChunk aims at chunks of about the given number of bytes. It leaves a size
// alone that is within a factor of two, so that it doesn't swing.
func nextChunk(keys int64, bytes, aim int) int64 {
	switch {
	case bytes < aim/2:
		return keys * 2
	case bytes > aim*2:
		return max(1, keys/2)
	}
	return keys
}
