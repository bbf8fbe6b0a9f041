package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
)

// TestStories runs the scripts in testdata: a few replicas, step by step, with
// a given order of messages. Key d lies in partition 0, key a in 1.
//
//	new servers=3              start them, with two partitions
//	campaign server=1 [group=0]
//	kill server=1              stop it: it neither works nor receives
//	forget server=3            it forgets its leader, as after a timeout
//	put server=1 key=a         submit; "both" writes d and a in one transaction
//	grant server=1 session=7   grant a session its lease
//	write server=1 key=a seq=2 [pred=1] [session=7]
//	                           submit a session's write
//	work server=1 [group=0]    run the loop until it has nothing to do
//	deliver [from=1] [to=2] [group=0]
//	                           let messages arrive, once, in order
//	drop [from=1] [to=2] [group=0]
//	quiesce                    work and deliver until all is quiet
//	read server=2 key=a        a strict read
//	status                     what each server shows
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				var servers int
				d.ScanArgs(t, "servers", &servers)
				s = newStory(t, servers)
				return ""
			}
			s.said.Reset()
			s.run(t, d)
			return strings.ReplaceAll(s.said.String(), "\t", " ")
		})
	})
}

type story struct {
	t        *testing.T
	replicas []*Replica
	stores   [][]*store.Store
	wire     []envelope
	dead     map[uint64]bool
	said     strings.Builder
}

// envelope is one message in flight.
type envelope struct {
	from, to uint64
	group    int // -1: not of a group
	raft     *raftpb.Message
	packet   Packet
}

func newStory(t *testing.T, servers int) *story { return newStoryOf(t, servers, 2) }

func newStoryOf(t *testing.T, servers, partitions int) *story {
	s := &story{t: t, dead: map[uint64]bool{}}
	var voters []uint64
	for i := range servers {
		voters = append(voters, uint64(i+1))
	}
	for _, id := range voters {
		m := placement.New(partitions)
		var logs []*raftlog.Log
		var stores []*store.Store
		for p := range partitions {
			logs = append(logs, raftlog.New(uint32(p), &raftpb.ConfState{Voters: voters}))
			st := store.New(nil)
			st.SetApplied(1, 1)
			stores = append(stores, st)
		}
		machine := apply.New(apply.Config{Stores: stores, Leases: lease.NewTable(), Placement: m})
		machine.LoadMembership(membership.OfIDs(voters...), nil)
		r, err := New(Config{
			ID: id, Origin: id * 1000, ElectionTicks: 10, HeartbeatTicks: 1, RequestTicks: 50,
			Logs: logs, Stores: stores,
			Machine: machine,
			Network: wire{s, id}, Disk: sound{}, Wake: func(int) {},
			Logger: s.logger(id),
		})
		require.NoError(t, err)
		s.replicas = append(s.replicas, r)
		s.stores = append(s.stores, stores)
	}
	return s
}

// logger makes the servers' logs part of the output.
func (s *story) logger(id uint64) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", ConsoleSeparator: " "})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(speaker{s, id}), zap.InfoLevel))
}

type speaker struct {
	s  *story
	id uint64
}

func (w speaker) Write(line []byte) (int, error) {
	fmt.Fprintf(&w.s.said, "%d: %s", w.id, line)
	return len(line), nil
}

// wire keeps messages until the story delivers them.
type wire struct {
	s    *story
	from uint64
}

func (w wire) Raft(to uint64, group int, m *raftpb.Message) {
	w.s.wire = append(w.s.wire, envelope{from: w.from, to: to, group: group, raft: m})
}

func (w wire) Send(to uint64, p Packet) bool {
	w.s.wire = append(w.s.wire, envelope{from: w.from, to: to, group: -1, packet: p})
	return true
}

func (w wire) Snapshot(to uint64) { fmt.Fprintf(&w.s.said, "%d: %d needs a snapshot\n", w.from, to) }

// sound is a disk whose writes are durable at once.
type sound struct{}

func (sound) Append(_ int, _ []wal.Record, durable func()) {
	if durable != nil {
		durable()
	}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) {
	server, group, key := 1, -1, "a"
	from, to := 0, 0
	d.MaybeScanArgs(t, "server", &server)
	d.MaybeScanArgs(t, "group", &group)
	d.MaybeScanArgs(t, "key", &key)
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "to", &to)
	r := s.replicas[server-1]
	switch d.Cmd {
	case "campaign":
		for p, g := range r.groups {
			if group < 0 || group == p {
				g.order(campaign)
			}
		}
	case "kill":
		s.dead[r.cfg.ID] = true
	case "forget":
		for _, g := range r.groups {
			g.order(forgetLeader)
		}
	case "put":
		s.put(r, key)
	case "grant", "write":
		s.session(r, d, key)
	case "work":
		s.work(r, group)
	case "deliver", "drop":
		s.carry(d.Cmd == "deliver", uint64(from), uint64(to), group)
	case "quiesce":
		s.quiesce()
	case "read":
		s.read(r, key)
	case "status":
		s.status()
	default:
		t.Fatalf("unknown step %q", d.Cmd)
	}
}

// elect makes a server lead all groups.
func (s *story) elect(r *Replica) {
	for _, g := range r.groups {
		g.order(campaign)
	}
	s.quiesce()
	require.True(s.t, r.Leading())
}

func campaign(g *group)     { _ = g.node.Campaign() }
func forgetLeader(g *group) { _ = g.node.ForgetLeader() }

// follow has a group hear that another server leads, in a later term.
func follow(leader uint64) func(*group) {
	return func(g *group) {
		_ = g.node.Step(&raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: proto.Uint64(leader), To: proto.Uint64(g.r.cfg.ID),
			Term: proto.Uint64(g.term.Load() + 1), Commit: proto.Uint64(0),
		})
	}
}

func (s *story) put(r *Replica, key string) {
	var req proto.Message
	kind, m := command.Put, r.cfg.Machine.Placement()
	parts := placement.Of(m.Partition([]byte(key)))
	op := func(k string) *pb.PutRequest { return &pb.PutRequest{Key: []byte(k), Value: []byte("v")} }
	if req = op(key); key == "both" {
		kind, parts = command.Txn, m.All()
		txn := &pb.TxnRequest{}
		for _, k := range []string{"d", "a"} {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: op(k)}})
		}
		req = txn
	}
	body, err := proto.Marshal(req)
	require.NoError(s.t, err)
	r.Submit(&Write{
		Command: command.Command{Kind: kind, Body: body}, Parts: parts,
		Done: func(out Outcome) {
			if out.Err != nil {
				fmt.Fprintf(&s.said, "put of %s at %d: %v\n", key, r.cfg.ID, out.Err)
				return
			}
			fmt.Fprintf(&s.said, "put of %s at %d: revision %d\n", key, r.cfg.ID, out.Rev)
		},
	})
}

func (s *story) session(r *Replica, d *datadriven.TestData, key string) {
	id, seq, pred := 7, 0, 0
	d.MaybeScanArgs(s.t, "session", &id)
	d.MaybeScanArgs(s.t, "seq", &seq)
	d.MaybeScanArgs(s.t, "pred", &pred)
	if d.Cmd == "grant" {
		body, err := proto.Marshal(&pb.LeaseGrantRequest{ID: int64(id), TTL: 60})
		require.NoError(s.t, err)
		r.Submit(&Write{
			Command: command.Command{Kind: command.SessionOpen, Body: body}, Parts: r.cfg.Machine.Placement().All(), System: true,
			Done: func(out Outcome) { require.NoError(s.t, out.Err) },
		})
		return
	}
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte(key), Value: []byte("v")})
	require.NoError(s.t, err)
	q := command.Sequenced{Session: int64(id), Seq: uint64(seq), Pred: uint64(pred), Kind: command.Put, Body: body}
	home := r.cfg.Machine.Placement().Partition([]byte(key))
	parts := placement.Of(home)
	d.MaybeScanArgs(s.t, "home", &home)
	r.Submit(&Write{
		Command: command.Command{Kind: command.InSession, Body: q.AppendTo(nil)},
		Parts:   parts | placement.Of(home), Home: int32(home), Session: true,
		Done: func(out Outcome) {
			if out.Err != nil {
				fmt.Fprintf(&s.said, "write %d at %d: %v\n", seq, r.cfg.ID, out.Err)
				return
			}
			rev := out.Response.(*pb.PutResponse).Header.Revision
			require.Equal(s.t, out.Rev, rev)
			fmt.Fprintf(&s.said, "write %d at %d: revision %d\n", seq, r.cfg.ID, rev)
		},
	})
}

func (s *story) work(r *Replica, group int) {
	for p, g := range r.groups {
		for n := 0; (group < 0 || group == p) && g.in.woken && n < 100; n++ {
			if s.dead[r.cfg.ID] {
				break
			}
			r.Work(p)
		}
	}
}

func (s *story) carry(deliver bool, from, to uint64, group int) {
	waiting := s.wire
	s.wire = nil
	for _, e := range waiting {
		switch {
		case from != 0 && e.from != from || to != 0 && e.to != to || group >= 0 && e.group != group:
			s.wire = append(s.wire, e)
		case !deliver || s.dead[e.to] || s.dead[e.from]:
		default:
			s.deliver(e)
		}
	}
}

func (s *story) deliver(e envelope) {
	if to := s.replicas[e.to-1]; e.raft != nil {
		to.ReceiveRaft(e.group, e.raft)
	} else {
		to.Receive(e.from, e.packet)
	}
}

func (s *story) quiesce() {
	for n := 0; n < 200; n++ {
		for _, r := range s.replicas {
			s.work(r, -1)
		}
		if len(s.wire) == 0 && !s.restless() {
			return
		}
		s.carry(true, 0, 0, -1)
	}
	s.t.Fatal("the servers don't come to rest")
}

// restless reports whether a group was woken by another one's turn.
func (s *story) restless() bool {
	return slices.ContainsFunc(s.replicas, func(r *Replica) bool {
		return !s.dead[r.cfg.ID] && slices.ContainsFunc(r.groups, func(g *group) bool { return g.in.woken })
	})
}

func (s *story) read(r *Replica, key string) {
	p := r.cfg.Machine.Placement().Partition([]byte(key))
	r.ReadPoint(placement.Of(p), func(err error) {
		st := s.stores[r.cfg.ID-1][p]
		st.RLock()
		defer st.RUnlock()
		if err != nil {
			fmt.Fprintf(&s.said, "read of %s at %d: %v\n", key, r.cfg.ID, err)
		} else if kv := st.Get([]byte(key)); kv.Exists() {
			fmt.Fprintf(&s.said, "read of %s at %d: written at %d, as of %d\n", key, r.cfg.ID, kv.ModRevision(), r.Visible(p))
		} else {
			fmt.Fprintf(&s.said, "read of %s at %d: nothing, as of %d\n", key, r.cfg.ID, r.Visible(p))
		}
	})
}

func (s *story) status() {
	for i, r := range s.replicas {
		if s.dead[r.cfg.ID] {
			continue
		}
		var parts, keys []string
		for p, g := range r.groups {
			role := "follows"
			if g.leading {
				role = "leads"
			}
			waits := ""
			if g.blocked {
				waits = ", waits"
			}
			parts = append(parts, fmt.Sprintf("%s %d at term %d, closed %d%s", role, p, g.term.Load(), r.Closed(p), waits))
			for _, k := range []string{"a", "d"} {
				if kv := s.stores[i][p].Get([]byte(k)); kv.Exists() {
					keys = append(keys, fmt.Sprintf("%s@%d", k, kv.ModRevision()))
				}
			}
		}
		slices.Sort(keys)
		stamps := ""
		if r.Leading() {
			stamps = " stamps;"
		}
		fmt.Fprintf(&s.said, "%d:%s %s; keys %v\n", r.cfg.ID, stamps, strings.Join(parts, "; "), keys)
	}
}
