package node

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// QuotaChange sets or removes the quota of a role or a prefix.
func (n *Node) QuotaChange(ctx context.Context, c *stoapb.QuotaChange) error {
	_, err := submitSystem[*pb.AuthStatusResponse](ctx, n, command.Quota, c)
	return err
}

// overQuota refuses a put that doesn't fit into a quota, for the cost of a read: that it is as
// strict as one makes sure that whatever was acknowledged before, a deletion say, counts.
func (n *Node) overQuota(ctx context.Context, r *pb.PutRequest, who identity) error {
	c := n.core.Load()
	if c.machine.OverQuota(r, who.user) == nil {
		return nil
	}
	c, err := n.strictAll(ctx)
	if err != nil {
		return err
	}
	if err := c.machine.OverQuota(r, who.user); err != nil {
		n.counts.failed.Add(1)
		return err
	}
	return nil
}

// QuotaUsage is a quota with what is used of it in the cluster, and on this server.
type QuotaUsage struct {
	apply.QuotaUsage
	Here tenant.Usage
}

// Quotas returns all quotas, in the order of roles and then of prefixes, to root, and whether
// they are in force; only then they have what is used of them. It is no older than the call.
func (n *Node) Quotas(ctx context.Context) (list []QuotaUsage, enforced bool, err error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, false, err
	}
	c, err := n.strictAll(ctx)
	if err != nil {
		return nil, false, err
	}
	now := c.machine.Auth()
	u, err := as(ctx, n, &who, func(who identity) (*auth.User, error) { return now.Authorize(who.user) })
	if err == nil {
		err = u.MustBeRoot()
	}
	if n.Fenced() {
		return nil, false, fault.Fenced
	}
	if err != nil || now.Index() == nil {
		for _, q := range now.Quotas() {
			list = append(list, QuotaUsage{QuotaUsage: apply.QuotaUsage{Quota: q}})
		}
		return list, now.Enabled, err
	}
	return n.usage(c), true, nil
}

// QuotasUsed returns the quotas that are in force, as this server knows them.
func (n *Node) QuotasUsed() []QuotaUsage { return n.usage(n.core.Load()) }

func (n *Node) usage(c *core) []QuotaUsage {
	used := c.machine.QuotasUsed()
	list := make([]QuotaUsage, len(used))
	for i := range used {
		list[i] = QuotaUsage{used[i], n.limits.Usage(&used[i].Quota)}
	}
	return list
}
