package node

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/protofield"
)

// What a user may know of leases, and do to them, follows from its permissions for the keys
// that are attached.

// renewer reads the end of a request to renew a lease.
func renewer(b []byte) (user uint64, session bool) {
	user, n := binary.Uvarint(b)
	return user, n > 0 && len(b) > n
}

// keysFor returns the keys of a lease to a user who may read all of them.
func (c *core) keysFor(user uint64, id int64) ([][]byte, error) {
	u, err := c.machine.Auth().Authorize(user)
	if err != nil {
		return nil, err
	}
	keys, err := c.machine.LeaseKeys(id)
	if err != nil {
		return nil, err
	}
	return keys, mayReadAll(u, keys)
}

func mayReadAll(u *auth.User, keys [][]byte) error {
	if u.IsRoot() {
		return nil
	}
	for _, key := range keys {
		if err := u.MayRead(key, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) mayReadLeases(user uint64, list []lease.Lease) error {
	u, err := c.machine.Auth().Authorize(user)
	if err != nil || u.IsRoot() {
		return err
	}
	for _, l := range list {
		keys, err := c.machine.LeaseKeys(l.ID)
		if err != nil {
			return err
		}
		if err := mayReadAll(u, keys); err != nil {
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
