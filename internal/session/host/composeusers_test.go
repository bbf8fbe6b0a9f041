package host

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// In some runs the apps are a user of the clusters, whose rights to some of the keys are taken away for a while, now and then: requests are refused in
// the middle of what they belong to. Whether rights are kept is TestClients' to find out.

const composedUser = "app"

// composedRanges are what there are rights to, from each to the next: all keys together. Every other one is taken away.
var composedRanges = []string{"\x00", "/c1/", "/c10", "/stoa/txn/", "/stoa/txn0", "t1/", "t10", "\xff"}

func composedGrant(part int, kind authpb.Permission_Type) *pb.InternalRaftRequest {
	p := &authpb.Permission{PermType: kind, Key: []byte(composedRanges[part]), RangeEnd: []byte(composedRanges[part+1])}
	return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: composedUser, Perm: p}}
}

// addUser has permissions enforced, but for watches and compactions.
func (c *simCluster) addUser() {
	c.rig.lenient = true
	c.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root, HashedPassword: hashed("root")}})
	c.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}})
	c.enact(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: composedUser}})
	for part := range composedRanges[1:] {
		c.enact(composedGrant(part, authpb.Permission_READWRITE))
	}
	c.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: composedUser, HashedPassword: hashed(clientPassword)}})
	c.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: composedUser, Role: composedUser}})
	c.enact(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
}

// enact changes users and roles, and tries until the first server has the change.
func (c *simCluster) enact(r *pb.InternalRaftRequest) {
	core := func() *rigCore { return c.rig.servers[0].process.Load().core.Load() }
	before := core().Machine.Auth()
	for begun := time.Now(); time.Since(begun) < composedHang; time.Sleep(20 * time.Millisecond) {
		done := make(chan error, 1)
		core().propose(command.Auth, r, func(out replica.Outcome) { done <- out.Err })
		err := <-done
		if now := core().Machine.Auth(); err == nil || now.Revision != before.Revision || now.Enabled != before.Enabled {
			return
		}
	}
	c.rig.t.Errorf("%v isn't carried out", r)
}

// deny takes a right away, in part or as a whole, for a while, several times.
func (w *composedWorld) deny(c *simCluster, rng *rand.Rand) {
	part, times, long := 1+2*rng.IntN(len(composedRanges)/2-1), 1+rng.IntN(8), time.Duration(rng.IntN(200))*time.Millisecond
	r := composedGrant(part, []authpb.Permission_Type{authpb.Permission_READ, authpb.Permission_WRITE}[rng.IntN(2)])
	if rng.IntN(2) == 0 {
		r = &pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{
			Role: composedUser, Key: []byte(composedRanges[part]), RangeEnd: []byte(composedRanges[part+1]),
		}}
	}
	w.resizers.Go(func() {
		c.governs.Lock()
		defer c.governs.Unlock()
		for range times {
			if w.calm.Load() {
				return
			}
			c.enact(r)
			time.Sleep(long)
			c.enact(composedGrant(part, authpb.Permission_READWRITE))
			time.Sleep(long)
		}
	})
}
