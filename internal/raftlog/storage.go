package raftlog

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// InitialState implements raft.Storage.
func (l *Log) InitialState() (*pb.HardState, *pb.ConfState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hs.proto(), proto.CloneOf(l.conf), nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base.Index + 1, nil
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last(), nil
}

// Term implements raft.Storage.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index == l.base.Index {
		return l.base.Term, nil
	}
	e, err := l.entry(index)
	if err != nil {
		return 0, err
	}
	return e.GetTerm(), nil
}

// Entry returns one entry, which must not be changed.
func (l *Log) Entry(index uint64) (*pb.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry(index)
}

func (l *Log) entry(index uint64) (*pb.Entry, error) {
	switch {
	case index <= l.base.Index:
		return nil, raft.ErrCompacted
	case index > l.last():
		return nil, raft.ErrUnavailable
	}
	return l.ents[index-l.base.Index-1], nil
}

// Entries implements raft.Storage. Sizes are computed as by Bytes, not by the
// protobuf encoding: the limit is there to bound a message, and an exact size
// would cost a pass over every entry's encoding.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case lo <= l.base.Index:
		return nil, raft.ErrCompacted
	case lo > hi || hi > l.last()+1:
		return nil, raft.ErrUnavailable
	}
	ents := l.ents[lo-l.base.Index-1 : hi-l.base.Index-1]
	var size uint64
	for i, e := range ents {
		size += uint64(cost(e))
		if i > 0 && size > maxSize {
			ents = ents[:i]
			break
		}
	}
	return ents[:len(ents):len(ents)], nil
}

// Snapshot implements raft.Storage with the position that is applied and no
// data: the snapshot that is sent is the server's backend file, which the
// caller obtains.
func (l *Log) Snapshot() (*pb.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		ConfState: proto.CloneOf(l.conf),
		Index:     new(l.applied.Index),
		Term:      new(l.applied.Term),
	}}, nil
}
