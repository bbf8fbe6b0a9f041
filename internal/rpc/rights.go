package rpc

import "context"

// right is what a method demands of its client before it is carried out, while permissions
// are enforced. All others are decided with the request's keys, where it takes effect.
type right uint8

const (
	decidedLater right = iota
	forUsers           // of any user
	forRoot
)

var rights = map[string]right{
	"/etcdserverpb.Maintenance/Status": forUsers,
	"/etcdserverpb.Cluster/MemberList": forUsers,

	"/etcdserverpb.Maintenance/Defragment": forRoot,
	"/etcdserverpb.Maintenance/Hash":       forRoot,
	"/etcdserverpb.Maintenance/HashKV":     forRoot,
	"/etcdserverpb.Maintenance/Snapshot":   forRoot,
	"/etcdserverpb.Maintenance/MoveLeader": forRoot,
	"/etcdserverpb.Maintenance/Downgrade":  forRoot,
	"/etcdserverpb.Cluster/MemberAdd":      forRoot,
	"/etcdserverpb.Cluster/MemberRemove":   forRoot,
	"/etcdserverpb.Cluster/MemberUpdate":   forRoot,
	"/etcdserverpb.Cluster/MemberPromote":  forRoot,
	"/etcdserverpb.KV/Compact":             forRoot,
	"/stoa.v1.Partitions/List":             forRoot, // it tells how many keys there are
	"/stoa.v1.Partitions/Move":             forRoot,
	"/stoa.v1.Partitions/Pin":              forRoot,
	"/stoa.v1.Partitions/Unpin":            forRoot,
	"/stoa.v1.Partitions/Balance":          forRoot,
}

func (s *Server) checkRight(ctx context.Context, c *call) error {
	if c.right == decidedLater {
		return nil
	}
	return toStatus(s.node.Permit(ctx, c.right == forRoot))
}
