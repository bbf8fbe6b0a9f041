package main

import (
	"context"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/transport"
)

// join has this server admitted to its cluster, which begins with it or is there already.
// The IDs of a cluster that is there already come from its members, not from the settings.
func (s *server) join(ctx context.Context) error {
	self, err := s.self(ctx)
	if err != nil {
		return err
	}
	tls, err := s.ports.peerClientTLS()
	if err != nil {
		return err
	}
	ask := func(ctx context.Context, to bootstrap.Member, q *peerpb.Introduction) (*peerpb.Introduction, error) {
		return transport.Introduce(ctx, to.PeerURLs, tls, q)
	}
	look := func(ctx context.Context, at bootstrap.Member) (bootstrap.Cluster, error) {
		id, list, err := serve.FetchMembers(ctx, tls, at.PeerURLs)
		c := bootstrap.Cluster{ID: bootstrap.ID(id)}
		for _, m := range list {
			c.Members = append(c.Members, bootstrap.Member{ID: bootstrap.ID(m.GetID()), Name: m.GetName(), PeerURLs: m.GetPeerURLs()})
		}
		return c, err
	}
	if self.Existing {
		if self, err = s.registry.Find(ctx, self, look, config.SameURLs, ask); err != nil {
			return err
		}
	}
	if err := s.registry.Begin(self); err != nil {
		return err
	}
	s.lg.Info("bootstrapping this member", zap.Stringer("cluster-id", self.Cluster), zap.Stringer("local-member-id", self.Member),
		zap.String("initial-cluster", self.InitialCluster), zap.String("initial-cluster-token", self.Token),
		zap.Bool("initial-cluster-existing", self.Existing), zap.Int("partitions", self.Partitions))
	_, err = s.registry.Join(ctx, ask)
	return err
}
