package sim

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A leader renews a lease, of which the log says that little remains, while its groups follow a change of members, and keeps
// back the checkpoint that resets that. It is cut off, and the next leader gives the lease what the log says. The
// renewal may only be acknowledged if the next leader knows of it.
func TestARenewalOfALeaderOfBefore(t *testing.T) {
	inMostRuns(t, "the renewal of the leader before is answered", func(o *Options) { o.Servers, o.Partitions, o.Members = 3, 2, true }, (*cluster).renewLate)
}

func (c *cluster) renewLate() (met bool) {
	const id = 1 << 20
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	core := leader.life.core
	granted := c.loop.now
	if !c.asks(leader, strictly(&pb.LeaseGrantRequest{ID: id, TTL: 8})) {
		return false
	}
	c.until(granted + 7200*time.Millisecond - c.loop.now) // checkpoints say that a second is left
	if l, ok := core.leases.Get(id); !ok || l.Remaining == 0 || l.Remaining > 2 || !core.replica.Leading() {
		return false
	}
	var renewal *op
	if c.succeeded(leader, func() bool {
		renewal = c.clientOf(leader).send(request{message: &pb.LeaseKeepAliveRequest{ID: id}})
		c.until(20 * time.Millisecond)
		return true
	}) == nil {
		return false
	}
	c.net.heal()
	c.waitFor(clientTimeout, func() bool { return renewal.state != open })
	met = renewal.state == ok
	c.until(3 * time.Second) // less than the TTL
	c.finish()
	return met
}
