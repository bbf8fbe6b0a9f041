package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

type kvServer struct {
	pb.UnsafeKVServer
	header
	kv     KV
	maxOps int // in one level of a transaction
	chunk  int // bytes that a chunk of RangeStream aims at
}

func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.Range(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, s.fill(resp.Header)
}

func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.Put(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, s.fill(resp.Header)
}

func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.DeleteRange(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, s.fill(resp.Header)
}

func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r, s.maxOps); err != nil {
		return nil, err
	}
	// Only now, when the number of operations is known to be bounded.
	if err := checkOverlaps(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.Txn(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, s.fill(resp.Header)
}

func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	resp, err := s.kv.Compact(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, s.fill(resp.Header)
}
