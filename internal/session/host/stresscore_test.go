package host

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
	"github.com/stoa-kv/stoa/internal/watch"
)

// rigCore is one life of the replicated state: from its load to the next one.
type rigCore struct {
	State
	p      *rigProcess
	file   *backend.Backend
	placed *placement.Map     // as it was loaded
	groups *membership.Groups // likewise
	moving atomic.Bool        // keys are being moved on

	// In the file.
	stored       *placement.Map
	storedGroups *membership.Groups
	epochs       []command.Epochs
	users        *auth.State

	leases  *lease.Table
	feed    *watch.Feed
	stale   atomic.Bool
	wake    []chan struct{}
	disk    chan func()
	halt    chan struct{}
	wg      sync.WaitGroup
	flushed []uint64
}

// load loads the state from a file. The log is applied again from there. After the end of a generation of groups, the stores
// are those of the core before.
func (p *rigProcess) load(file *backend.Backend, old *rigCore) *rigCore {
	t := p.s.rig.t
	c := &rigCore{p: p, file: file, disk: make(chan func(), 4096), halt: make(chan struct{})}
	require.NoError(t, recovery.Resize(file))
	meta, err := file.Meta()
	require.NoError(t, err)
	c.groups, err = recovery.ReadGroups(&meta)
	require.NoError(t, err)
	c.placed, err = recovery.Placement(&meta)
	require.NoError(t, err)
	c.stored, c.storedGroups = c.placed, c.groups
	c.loadStores(&meta, old)
	c.Machine = apply.New(apply.Config{
		Stores: c.Stores, Leases: c.leases, Placement: c.placed, Sink: c, Observer: rigObserver{c},
		Visible: func(i int) int64 { return c.Replica.Visible(i) },
	})
	c.loadMachine(&meta)
	c.Replica, err = replica.New(replica.Config{
		ID: p.s.id, Origin: stressOrigin.Add(1), ElectionTicks: 10, HeartbeatTicks: 1,
		RequestTicks: int64(stressTimeout / p.s.rig.tick),
		Logs:         p.s.logs, Stores: c.Stores, Machine: c.Machine, Calls: p.calls, Network: c, Disk: c,
		Wake: func(i int) {
			select {
			case c.wake[i] <- struct{}{}:
			default:
			}
		},
		Closed: func(i int, rev int64) {
			c.feed.Advance(i, rev)
			p.sessions.Advanced()
		},
		Resized: func() { go p.regroup(c) },
		Role: func(epoch uint64) {
			p.s.rig.counts.led.Add(1)
			if epoch == 0 {
				p.expirer.Demote()
			} else if p.core.Load() == c {
				p.expirer.Promote(time.Now(), c.leases, 10*p.s.rig.tick)()
			}
		},
		Serve: func(method uint32, body []byte, reply func([]byte, error)) {
			if method == timeToLiveMethod {
				c.timeToLive(body, reply)
			} else {
				c.renew(body, reply)
			}
		},
	})
	require.NoError(t, err)
	return c
}

func (c *rigCore) begin(led bool) {
	for i := range c.wake {
		c.wg.Go(func() {
			for {
				select {
				case <-c.wake[i]:
					c.Replica.Work(i)
				case <-c.halt:
					return
				}
			}
		})
	}
	c.wg.Go(func() {
		for {
			select {
			case durable := <-c.disk:
				durable()
			case <-c.halt:
				return
			}
		}
	})
	c.Replica.Start(led)
}

// end stops the loops. Nothing is applied after it.
func (c *rigCore) end() {
	c.stale.Store(true)
	close(c.halt)
	c.wg.Wait()
}

// flush puts a cut into the file and shortens the logs.
func (c *rigCore) flush() {
	t := c.p.s.rig.t
	cut := &backend.Cut{Partitions: make([]store.Cut, len(c.Stores))}
	for _, st := range c.Stores {
		st.Lock()
	}
	changed, gone := c.leases.Cut()
	for _, l := range changed {
		cut.System.Leases = append(cut.System.Leases, backend.Lease(l))
	}
	cut.System.LeasesRevoked = gone
	if cut.System.AlarmsOn = c.Machine.Alarms(); len(cut.System.AlarmsOn) == 0 {
		cut.System.AlarmsOff = []*pb.AlarmMember{noSpace}
	}
	sessions, placed, groups, users := c.Machine.CutSessions(), c.Machine.StoredPlacement(), c.Machine.Groups(), c.Machine.Auth()
	epochs := recovery.StoredEpochs(c.Machine.Epochs(), c.Machine.Level())
	for i, st := range c.Stores {
		cut.Partitions[i] = st.Cut()
	}
	for _, st := range c.Stores {
		st.Unlock()
	}
	recovery.CutPlacement(&cut.System, c.stored, placed)
	recovery.CutGroups(&cut.System, c.storedGroups, groups)
	recovery.CutEpochs(&cut.System, c.epochs, epochs)
	recovery.CutAuth(&cut.System, c.users, users)
	cut.System.Blobs = sessions.AddTo(cut.System.Blobs)
	require.NoError(t, c.file.Flush(cut))
	c.stored, c.storedGroups, c.epochs, c.users = placed, groups, epochs, users
	for i, st := range c.Stores {
		st.Release(cut.Partitions[i])
		c.p.s.logs[i].SetApplied(raftlog.Position{Index: cut.Partitions[i].Index, Term: cut.Partitions[i].Term})
		c.p.s.logs[i].Shorten(raftlog.Tail{Entries: 5000, Bytes: math.MaxInt64, Needed: c.Replica.Needed(i), Held: math.MaxInt64, Common: math.MaxUint64})
	}
}

func (c *rigCore) propose(kind command.Kind, req proto.Message, done func(replica.Outcome)) {
	c.proposeAs(auth.Own, kind, req, done)
}

func (c *rigCore) proposeAs(user uint64, kind command.Kind, req proto.Message, done func(replica.Outcome)) {
	body, err := proto.Marshal(req)
	if err != nil {
		panic(err)
	}
	c.Replica.Submit(&replica.Write{
		Command: command.Command{Kind: kind, User: user, Body: body}, Parts: c.placed.All(), System: true, Done: done,
	})
}

// renew renews a lease on the leader.
func (c *rigCore) renew(body []byte, reply func([]byte, error)) {
	id, n := binary.Varint(body)
	c.Replica.ReadPoint(placement.Of(0), func(err error) {
		if err != nil {
			reply(nil, err)
			return
		}
		go func() { // it reads the stores
			if err := c.Machine.MayRenew(id, apply.ReadRenewer(body[n:])); err != nil {
				reply(nil, err)
				return
			}
			r, err := c.p.expirer.Renew(id, time.Now())
			reply(binary.AppendVarint(nil, r.TTL), err)
		}()
	})
}

// Changes implements apply.Sink.
func (c *rigCore) Changes(i int, rev int64, changes []store.Change) {
	c.p.s.rig.applied(c, i, rev, changes)
	c.feed.Changes(i, rev, changes)
}

// rigObserver implements apply.Observer.
type rigObserver struct{ *rigCore }

func (o rigObserver) LeaseGranted(l lease.Lease) { o.p.expirer.Granted(l, time.Now()) }

func (o rigObserver) LeaseRevoked(id int64) {
	o.p.expirer.Revoked(id)
	o.p.sessions.Revoked(id)
}

func (o rigObserver) LeaseEnding(id int64) { o.p.expirer.Ending(id, time.Now()) }

func (o rigObserver) Compacted(rev int64) { o.p.hub.Compacted(rev) }

func (o rigObserver) AuthChanged(now *auth.State) {
	o.p.s.rig.ruled(now)
	o.permit(now)
}

func (o rigObserver) Authenticated(uint64, uint64, string) {}

func (o rigObserver) Moved(through int64, to *placement.Map) {
	o.Replica.AllClosed(through)
	o.feed.Moved(through, to.Wide, to.Transit() != nil)
}

// moveOn moves some of the keys that extensions need elsewhere.
func (c *rigCore) moveOn() {
	if !c.Replica.Leading() || c.moving.Swap(true) {
		return
	}
	step := c.Machine.Ahead(store.Budget{Keys: 2, Visits: 10})
	if step == nil {
		c.moving.Store(false)
		return
	}
	c.Replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)}, Parts: c.Machine.StepParts(step), System: true,
		Done: func(replica.Outcome) { c.moving.Store(false) },
	})
}

// Append implements replica.Disk.
func (c *rigCore) Append(_ int, _ []wal.Record, durable func()) {
	if durable == nil {
		return
	}
	select {
	case c.disk <- durable:
	case <-c.halt:
	}
}

// Raft implements replica.Network.
func (c *rigCore) Raft(to uint64, group int, m *raftpb.Message) {
	m = proto.CloneOf(m)
	c.send(to, func(r *replica.Replica) { r.ReceiveRaft(group, m) })
}

// Send implements replica.Network.
func (c *rigCore) Send(to uint64, packet replica.Packet) bool {
	return c.send(to, func(r *replica.Replica) { r.Receive(c.p.s.id, packet) })
}

func (c *rigCore) send(to uint64, deliver func(*replica.Replica)) bool {
	l := c.p.s.links[to]
	if l == nil {
		return false
	}
	select {
	case l.queue <- deliver:
		return true
	default:
		return false
	}
}
