package main

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/rpc"
)

// credentials returns how clients prove who they are. As in etcd, the names in their
// certificates count if they are asked for certificates.
func (s *server) credentials() func(context.Context) node.Credentials {
	names := s.cfg.ClientTLS.ClientCertAuth
	return func(ctx context.Context) node.Credentials {
		c := node.Credentials{Token: rpc.Token(ctx)}
		if c.Token == "" && names {
			c.CommonName = rpc.CommonName(ctx)
		}
		return c
	}
}

// bcryptCost is that of the settings, or bcrypt's default for one that bcrypt doesn't have.
func bcryptCost(cfg *config.Config, lg *zap.Logger) int {
	cost := int(cfg.BcryptCost)
	if cost < bcrypt.MinCost || cost > bcrypt.MaxCost {
		lg.Warn("use default bcrypt cost instead of the invalid given cost", zap.Int("min-cost", bcrypt.MinCost),
			zap.Int("max-cost", bcrypt.MaxCost), zap.Int("default-cost", bcrypt.DefaultCost), zap.Int("given-cost", cost))
		return bcrypt.DefaultCost
	}
	return cost
}
