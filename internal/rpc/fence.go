package rpc

import "github.com/stoa-kv/stoa/internal/fault"

// A fenced member, whose state differs from that of a majority, serves what tells an operator of
// it, and nothing else: its clients go on at another member.
var onFenced = map[string]bool{
	"/etcdserverpb.Maintenance/Status":     true,
	"/etcdserverpb.Maintenance/Hash":       true,
	"/etcdserverpb.Maintenance/HashKV":     true,
	"/etcdserverpb.Maintenance/Defragment": true,
}

func (s *Server) checkFence(c *call) error {
	if s.node.Fenced() && !c.fenced {
		return toStatus(fault.Fenced)
	}
	return nil
}
