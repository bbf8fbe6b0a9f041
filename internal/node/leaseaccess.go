package node

import (
	"google.golang.org/protobuf/encoding/protowire"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/protofield"
)

// What a user may know of leases, and do to them, follows from its permissions for the keys
// that are attached.

// mayReadLeases refuses a user who may not read all keys of the leases.
func (c *core) mayReadLeases(user uint64, list []lease.Lease) error {
	u, err := c.machine.Auth().Authorize(user)
	if err != nil || u.IsRoot() {
		return err
	}
	for _, l := range list {
		if _, err := c.machine.LeaseKeys(l.ID, user, (*auth.User).MayRead); err != nil {
			return err
		}
	}
	return nil
}

// userOf is the user in a request from server to server.
func userOf(r *pb.LeaseTimeToLiveRequest) uint64 {
	f, _ := protofield.Find(r.ProtoReflect().GetUnknown(), fieldUser, protowire.VarintType)
	return f.Varint
}
