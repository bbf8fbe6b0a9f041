package main

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/node"
)

// quotas shows the node's in the form of the service.
type quotas struct{ n *node.Node }

func (q quotas) ChangeQuota(ctx context.Context, c *stoapb.QuotaChange) error {
	return q.n.QuotaChange(ctx, c)
}

func (q quotas) ListQuotas(ctx context.Context) (*stoapb.ListQuotasResponse, error) {
	list, enforced, err := q.n.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	resp := &stoapb.ListQuotasResponse{Enforced: enforced}
	for _, roles := range []bool{true, false} {
		for _, u := range list {
			if (u.Role != "") == roles {
				resp.Quotas = append(resp.Quotas, &stoapb.QuotaUsage{
					Quota: &stoapb.Quota{
						Role: u.Role, Prefix: []byte(u.Prefix),
						MaxBytes: u.Bytes, MaxKeys: u.Keys, MaxWatchers: u.Watchers, MaxRate: u.Rate,
					},
					Bytes: u.Used.Bytes, Keys: u.Used.Keys, Watchers: u.Here.Watchers, Requests: u.Here.Requests,
				})
			}
		}
	}
	return resp, nil
}

// tenants are the first of the quotas in force, for the metrics.
func tenants(n *node.Node) (list []metrics.Tenant) {
	for _, u := range n.QuotasUsed() {
		if len(list) == metrics.MaxTenants {
			break
		}
		t := metrics.Tenant{
			Kind: "role", Name: u.Role, Bytes: u.Used.Bytes, Keys: u.Used.Keys, Watchers: u.Here.Watchers,
			MaxBytes: u.Bytes, MaxKeys: u.Keys, MaxWatchers: u.Watchers, MaxRate: u.Rate,
			RefusedWatchers: u.Here.RefusedWatches, RefusedRequests: u.Here.RefusedRequests,
		}
		if u.Role == "" {
			t.Kind, t.Name = "prefix", audit.Escape([]byte(u.Prefix))
		}
		list = append(list, t)
	}
	return list
}
