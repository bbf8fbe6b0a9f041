package rpc

import (
	"bytes"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// electionServer is etcd's service v3election.
type electionServer struct {
	lockpb.UnsafeElectionServer
	*queues
}

var (
	errMissingLeader = errors.New(`"leader" field must be provided`)
	errNotLeader     = errors.New("election: not leader")
	errNoLeader      = errors.New("election: no leader")
)

// Campaign puts the caller's key and waits until it is the oldest. The key of a caller
// who doesn't wait until then is removed.
func (s *electionServer) Campaign(ctx context.Context, r *lockpb.CampaignRequest) (*lockpb.CampaignResponse, error) {
	lease, err := s.leased(ctx, r.Lease)
	if err != nil {
		return nil, textOnly(err)
	}
	p := placeIn(r.Name, lease)
	entered, err := s.enter(ctx, &p, r.Value, read(p.oldest()))
	if err != nil {
		return nil, textOnly(err)
	}
	ctx = tenant.WithCounted(ctx)
	if !entered.Succeeded && !bytes.Equal(found(entered, 0)[0].GetValue(), r.Value) {
		if _, err = s.proclaim(ctx, &p, r.Value); err != nil {
			s.remove(ctx, &p)
			return nil, textOnly(err)
		}
	}
	if owner := found(entered, 1); len(owner) == 0 || owner[0].GetCreateRevision() != p.rev {
		held, err := s.awaitTurn(ctx, &p)
		if err != nil {
			return nil, textOnly(err)
		}
		if held == nil { // etcd says that it leads
			return nil, errNotLeader
		}
	}
	return &lockpb.CampaignResponse{Header: entered.Header,
		Leader: &lockpb.LeaderKey{Name: r.Name, Key: p.key, Rev: p.rev, Lease: lease}}, nil
}

// Proclaim changes the leader's value.
func (s *electionServer) Proclaim(ctx context.Context, r *lockpb.ProclaimRequest) (*lockpb.ProclaimResponse, error) {
	if r.Leader == nil {
		return nil, errMissingLeader
	}
	lease, err := s.leased(ctx, r.Leader.Lease)
	if err != nil {
		return nil, textOnly(err)
	}
	h, err := s.proclaim(ctx, &place{key: r.Leader.Key, rev: r.Leader.Rev, lease: lease}, r.Value)
	if err != nil {
		return nil, textOnly(err)
	}
	return &lockpb.ProclaimResponse{Header: h}, nil
}

func (s *electionServer) proclaim(ctx context.Context, p *place, value []byte) (*pb.ResponseHeader, error) {
	resp, err := s.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{p.createdAt(p.rev)}, Success: []*pb.RequestOp{p.put(value)}})
	if err != nil {
		return nil, err
	}
	if !resp.Succeeded {
		return nil, errNotLeader
	}
	return resp.Header, nil
}

// Resign deletes the leader's key, if it is still the same.
func (s *electionServer) Resign(ctx context.Context, r *lockpb.ResignRequest) (*lockpb.ResignResponse, error) {
	if r.Leader == nil {
		return nil, errMissingLeader
	}
	h, err := s.deleteOwn(ctx, &place{key: r.Leader.Key, rev: r.Leader.Rev})
	if err != nil {
		return nil, textOnly(err)
	}
	return &lockpb.ResignResponse{Header: h}, nil
}

// Leader answers with the oldest key.
func (s *electionServer) Leader(ctx context.Context, r *lockpb.LeaderRequest) (*lockpb.LeaderResponse, error) {
	p := placeIn(r.Name, 0)
	resp, err := s.Range(ctx, p.oldest())
	if err != nil {
		return nil, textOnly(err)
	}
	if len(resp.Kvs) == 0 {
		return nil, errNoLeader
	}
	return &lockpb.LeaderResponse{Header: resp.Header, Kv: resp.Kvs[0]}, nil
}

// Observe sends the oldest key whenever that is another one or has another value. Of
// changes in quick succession it may leave out all but the last. Where etcd ends the stream
// without a word (a refused read, say), the client gets the error.
func (s *electionServer) Observe(r *lockpb.LeaderRequest, stream lockpb.Election_ObserveServer) error {
	ctx := stream.Context()
	for {
		leader, err := s.awaitLeader(ctx, r.Name)
		if err != nil {
			return textOnly(err)
		}
		if err := stream.Send(leader); err != nil {
			return err
		}
		ctx = tenant.WithCounted(ctx)
		err = s.follow(ctx, &pb.WatchCreateRequest{Key: leader.Kv.GetKey(), StartRevision: leader.Header.Revision + 1},
			func(h *pb.ResponseHeader, ev *mvccpb.Event) (gone bool, err error) {
				if ev.Type == mvccpb.Event_DELETE {
					return true, nil
				}
				return false, stream.Send(&lockpb.LeaderResponse{Header: h, Kv: ev.Kv})
			})
		if err != nil {
			return textOnly(err)
		}
	}
}

// awaitLeader returns the leader, or waits for one.
func (s *electionServer) awaitLeader(ctx context.Context, name []byte) (*lockpb.LeaderResponse, error) {
	p := placeIn(name, 0)
	for {
		resp, err := s.Range(ctx, p.oldest())
		if err != nil {
			return nil, err
		}
		ctx = tenant.WithCounted(ctx)
		if len(resp.Kvs) > 0 {
			return &lockpb.LeaderResponse{Header: resp.Header, Kv: resp.Kvs[0]}, nil
		}
		var leader *lockpb.LeaderResponse
		err = s.follow(ctx, &pb.WatchCreateRequest{
			Key: p.prefix, RangeEnd: prefixEnd(p.prefix), StartRevision: resp.Header.Revision + 1, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE},
		}, func(h *pb.ResponseHeader, ev *mvccpb.Event) (bool, error) {
			h.Revision = ev.Kv.GetModRevision() // others may have come with it in one response
			leader = &lockpb.LeaderResponse{Header: h, Kv: ev.Kv}
			return true, nil
		})
		if leader != nil || err != nil {
			return leader, err
		}
	}
}
