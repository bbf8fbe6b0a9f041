package rpc

import (
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A learner serves what etcd's do: serializable ranges, the status, and snapshots. stoa's
// own services are not restricted: sessions read there at the levels causal and fast.
var onLearners = map[string]bool{
	"/etcdserverpb.KV/Range":             true, // a serializable one; see kv.go
	"/etcdserverpb.Maintenance/Status":   true,
	"/etcdserverpb.Maintenance/Snapshot": true,
}

func (s *Server) checkLearner(c *call) error {
	if c.voters && s.node.IsLearner() {
		return rpctypes.ErrGRPCNotSupportedForLearner
	}
	return nil
}

// forVoters reports whether only members with a vote serve a method.
func forVoters(method string) bool {
	return !strings.HasPrefix(method, "/stoa.") && !onLearners[method]
}
