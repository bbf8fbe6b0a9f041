package rpc

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Quotas keeps the limits of tenants. Changes are root's, as is the list.
type Quotas interface {
	ChangeQuota(ctx context.Context, c *stoapb.QuotaChange) error
	ListQuotas(ctx context.Context) (*stoapb.ListQuotasResponse, error)
}

// ServeQuotas adds stoa's own service. It must be called before Serve.
func (s *Server) ServeQuotas(q Quotas) {
	s.register(stoapb.Quotas_ServiceDesc, &quotasServer{quotas: q})
}

type quotasServer struct {
	stoapb.UnimplementedQuotasServer
	quotas Quotas
}

func (s *quotasServer) Set(ctx context.Context, r *stoapb.SetQuotaRequest) (*stoapb.SetQuotaResponse, error) {
	q := r.GetQuota()
	err := s.quotas.ChangeQuota(ctx, &stoapb.QuotaChange{
		Role: q.GetRole(), Prefix: q.GetPrefix(),
		MaxBytes: q.GetMaxBytes(), MaxKeys: q.GetMaxKeys(), MaxWatchers: q.GetMaxWatchers(), MaxRate: q.GetMaxRate(),
	})
	return &stoapb.SetQuotaResponse{}, toStatus(err)
}

func (s *quotasServer) Remove(ctx context.Context, r *stoapb.RemoveQuotaRequest) (*stoapb.RemoveQuotaResponse, error) {
	err := s.quotas.ChangeQuota(ctx, &stoapb.QuotaChange{Role: r.GetRole(), Prefix: r.GetPrefix(), Remove: true})
	return &stoapb.RemoveQuotaResponse{}, toStatus(err)
}

func (s *quotasServer) List(ctx context.Context, _ *stoapb.ListQuotasRequest) (*stoapb.ListQuotasResponse, error) {
	resp, err := s.quotas.ListQuotas(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, nil
}
