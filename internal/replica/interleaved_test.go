package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/test/interleave"
)

// scene is a story whose every interleaving is executed. Server 1 stamps. The loops of one server are tasks,
// those of the others run with what the network brings.
type scene struct {
	*story
	w     *interleave.World
	r     *Replica // the one whose loops are tasks
	woken placement.Set
	stuck placement.Set // whose loops don't run
	loops int           // that run
	asked []*answers
	gone  error // what the last of them is answered whose leader goes
}

func newScene(t *testing.T, w *interleave.World, servers, of int) *scene {
	s := &scene{story: leading(t, servers), w: w}
	s.r = s.replicas[of-1]
	s.r.cfg.Wake = func(p int) { s.woken |= placement.Of(p) }
	for p := range s.r.groups {
		w.When(fmt.Sprintf("loop %d", p), func() bool { return (s.woken &^ s.stuck).Has(p) }, func() {
			s.woken &^= placement.Of(p)
			s.loops++
			s.r.Work(p)
			s.loops--
		})
	}
	return s
}

// network is the task that carries what there is, and runs the loops of the other servers.
func (s *scene) network() {
	s.w.When("network", func() bool { return len(s.wire) > 0 }, func() {
		all := s.wire
		s.wire = nil
		for _, e := range all {
			if to := s.replicas[e.to-1]; to == s.r {
				s.deliver(e)
			} else {
				interleave.Whole(func() {
					s.deliver(e)
					s.work(to, -1)
				})
			}
		}
	})
}

// write is a put of keys, as a task.
func (s *scene) write(name string, session bool, keys ...string) *answers {
	a := new(answers)
	s.asked, s.gone = append(s.asked, a), fault.TimeoutLeaderFail
	txn := &pb.TxnRequest{}
	var parts placement.Set
	for _, key := range keys {
		parts |= placement.Of(s.r.cfg.Machine.Placement().Partition([]byte(key)))
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}})
	}
	body, err := proto.Marshal(txn)
	require.NoError(s.t, err)
	w := &Write{Command: command.Command{Kind: command.Txn, Body: body}, Parts: parts, Home: int32(parts.First()), Session: session, Done: a.write}
	s.w.Go(name, func() { s.r.Submit(w) })
	return a
}

// read is a strict read of both partitions, or of one, as a task.
func (s *scene) read(name string, parts placement.Set) *answers {
	a := new(answers)
	s.asked, s.gone = append(s.asked, a), fault.LeaderChanged
	s.w.Go(name, func() { s.r.ReadPoint(parts, a.read) })
	return a
}

// once checks that each request was answered once, and how.
func (s *scene) once(allowed ...error) {
	for i, a := range s.asked {
		require.Equal(s.t, 1, a.count, "request %d", i)
		if a.err != nil {
			require.Contains(s.t, allowed, a.err, "request %d", i)
		}
	}
}

// left checks that nothing waits on the server.
func (s *scene) left() {
	for p, g := range s.r.groups {
		require.Empty(s.t, g.in.writes, "partition %d", p)
		require.Empty(s.t, g.wait.list, "partition %d", p)
		require.Empty(s.t, g.waiting, "partition %d", p)
		require.Zero(s.t, g.pending.Load(), "partition %d", p)
		require.Zero(s.t, g.open, "partition %d", p)
	}
	require.Zero(s.t, s.r.multi.count)
	require.Empty(s.t, s.r.conf.next)
	require.Nil(s.t, s.r.conf.current)
	require.Empty(s.t, s.r.reads.next)
	require.Empty(s.t, s.r.reads.asked)
}

var bothParts = placement.Of(0) | placement.Of(1)

// Writes of one and of both partitions, and a read, on a server that is alone: each is answered without anything
// that comes later, and the read shows what was acknowledged before it began.
func TestInterleavedWrites(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1, 1)
		one := s.write("write d", false, "d")
		both := s.write("write both", false, "d", "a")
		before := int64(0)
		w.Go("read", func() {
			a := new(answers)
			s.asked = append(s.asked, a)
			floor := int64(1)
			for _, acked := range []*answers{one, both} {
				if acked.count > 0 {
					floor = max(floor, s.r.seq.Committed())
				}
			}
			s.r.ReadPoint(bothParts, func(err error) {
				a.read(err)
				before = min(s.r.Visible(0), s.r.Visible(1))
				require.GreaterOrEqual(t, before, floor)
			})
		})
		return func() {
			require.Len(t, s.asked, 3)
			s.once()
			s.left()
			require.NotZero(t, before)
		}
	})
}

// The epoch ends while requests come: each is answered, or kept for the next leader; none waits for this server's
// stamps.
func TestInterleavedEndOfEpoch(t *testing.T) {
	for name, begin := range map[string]func(s *scene){
		"a write":              func(s *scene) { s.write("request", false, "d") },
		"a session's write":    func(s *scene) { s.write("request", true, "d") },
		"a write of both":      func(s *scene) { s.write("request", false, "d", "a") },
		"a session's of both":  func(s *scene) { s.write("request", true, "d", "a") },
		"a read":               func(s *scene) { s.read("request", placement.Of(1)) },
		"a read of both parts": func(s *scene) { s.read("request", bothParts) },
	} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 1, func(w *interleave.World) func() {
				s := newScene(t, w, 1, 1)
				begin(s)
				w.Go("later term", func() { s.r.groups[0].order(follow(2)) })
				return func() {
					require.False(t, s.r.Leading())
					kept := len(s.r.calls.parked) + len(s.r.calls.calls)
					answered := 0
					for _, a := range s.asked {
						answered += a.count
					}
					require.Equal(t, 1, kept+answered, "%d kept, %d answered", kept, answered)
					s.r.calls.Stop(fault.Stopped)
					s.r.Stop(fault.Stopped)
					s.once(s.gone, fault.Stopped)
				}
			})
		})
	}
}

// The same for a read that has to wait for a stamp: its partner's loop doesn't come.
func TestInterleavedWaitAtEndOfEpoch(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, 1, 1)
		s.stuck = placement.Of(1)
		put := newPut(t, new(answers))
		put.Parts = bothParts
		s.r.Submit(put)
		s.work(s.r, 0)
		require.Len(t, s.r.meet.waiting, 1)
		a := s.read("read", placement.Of(0))
		w.Go("later term", func() { s.r.groups[0].order(follow(2)) })
		return func() {
			require.False(t, s.r.Leading())
			require.Empty(t, s.r.groups[0].wait.list)
			require.Equal(t, 1, a.count+len(s.r.calls.parked)+len(s.r.calls.calls))
		}
	})
}

// The epoch ends while a decision comes of the server that stamped in it, that a lease has run out: no other server gets it.
func TestInterleavedDecision(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1, 1)
		body, err := proto.Marshal(&pb.LeaseRevokeRequest{ID: 7})
		require.NoError(t, err)
		a := new(answers)
		revoke := &Write{
			Command: command.Command{Kind: command.LeaseRevoke, Body: body}, Parts: bothParts, System: true, Epoch: s.r.seq.Epoch(), Done: a.write,
		}
		w.Go("decision", func() { s.r.Submit(revoke) })
		w.Go("later term", func() { s.r.groups[0].order(follow(2)) })
		return func() {
			require.False(t, s.r.Leading())
			require.Empty(t, s.r.calls.parked)
			require.Empty(t, s.r.calls.calls)
			require.Equal(t, 1, a.count)
		}
	})
}

// The replica stops while requests come: each is answered once.
func TestInterleavedStop(t *testing.T) {
	for name, begin := range map[string]func(s *scene){
		"a write":         func(s *scene) { s.write("request", false, "d") },
		"a write of both": func(s *scene) { s.write("request", false, "d", "a") },
		"a read":          func(s *scene) { s.read("request", bothParts) },
	} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 2, func(w *interleave.World) func() {
				s := newScene(t, w, 1, 1)
				s.work(s.r, -1)
				s.woken = 0
				begin(s)
				stopped := false
				w.When("stop", func() bool { return !stopped && s.loops == 0 }, func() {
					stopped, s.woken, s.r.cfg.Wake = true, 0, func(int) {} // the loops have ended
					s.r.calls.Stop(fault.Stopped)
					s.r.Stop(fault.Stopped)
				})
				return func() { s.once(fault.Stopped, s.gone) }
			})
		})
	}
}

// A tick has Raft stepped for a loop that is about to end: behind the last Work nobody does, as the log is another replica's.
func TestInterleavedLastWork(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, 1, 1)
		s.work(s.r, -1)
		s.woken = 0
		s.r.Submit(newPut(t, new(answers)))
		ended := false
		w.When("end", func() bool { return !ended && s.loops == 0 }, func() {
			ended, s.woken, s.r.cfg.Wake = true, 0, func(int) {}
		})
		w.Go("tick", func() {
			s.r.calls.now.Add(1)
			s.r.groups[0].order(func(*group) { require.False(t, ended) })
			s.r.groups[0].attend()
		})
		return func() {}
	})
}

// Two reads on a follower share a question, whose answer comes at any time; the link may break.
func TestInterleavedFollowerReads(t *testing.T) {
	for name, breaks := range map[string]bool{"all goes well": false, "the link breaks": true} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 1, func(w *interleave.World) func() {
				s := newScene(t, w, 3, 2)
				s.network()
				s.read("read 1", placement.Of(0))
				s.read("read 2", placement.Of(1))
				if breaks {
					w.Go("break", func() { s.r.Unreachable(1) })
				}
				return func() {
					if breaks {
						s.once(fault.TimeoutConnLost)
					} else {
						s.once()
					}
					s.left()
				}
			})
		})
	}
}

// A follower forwards a write, whose answer comes while the link breaks and its own loops apply it: it is
// answered once.
func TestInterleavedForwarding(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 3, 2)
		s.network()
		s.write("write", false, "d")
		w.Go("break", func() { s.r.Unreachable(1) })
		return func() {
			s.once(fault.TimeoutConnLost)
			s.left()
		}
	})
}

// Reads at the leader share rounds of confirmation, while answers come and questions are repeated.
func TestInterleavedConfirmation(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, 3, 1)
		s.network()
		s.read("read 1", placement.Of(0))
		s.read("read 2", placement.Of(0))
		w.Go("tick", func() {
			s.r.calls.now.Add(2)
			s.r.conf.tick()
		})
		return func() {
			s.once()
			s.left()
		}
	})
}

// The clock ticks while a loop applies something, and so takes a tick's work from it: the loop misses nothing.
func TestInterleavedTicks(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1, 1)
		s.write("write", false, "d")
		w.Go("clock", func() {
			for range 2 {
				now := s.r.calls.now.Add(1)
				for _, g := range s.r.groups {
					g.tick()
				}
				s.r.lead.tick().run()
				s.r.calls.tick(now)
			}
		})
		w.Go("message", func() { s.r.groups[0].order(func(g *group) { g.acked.stale = true }) })
		return func() {
			require.True(t, s.r.Leading())
			s.once()
			s.left()
			for _, g := range s.r.groups {
				require.False(t, g.hasMail())
			}
		}
	})
}

// A follower hears of another leader while it forwards a write: the write fails, since its fate is unknown, or is kept
// for the next leader, or is answered; not two of these.
func TestInterleavedLeaderChange(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 3, 2)
		s.network()
		a := s.write("write", false, "d")
		w.Go("later term", func() { s.r.groups[0].order(follow(3)) })
		return func() {
			require.EqualValues(t, 3, s.r.Leader())
			kept := len(s.r.calls.parked) + len(s.r.calls.calls)
			for _, g := range s.r.groups {
				kept += len(g.wait.list) // carried out, and not applied here
			}
			require.Equal(t, 1, a.count+kept, "%d answers, %v", a.count, a.err)
			if a.err != nil {
				require.Contains(t, []error{fault.TimeoutLeaderFail, fault.LeaderChanged}, a.err)
			}
		}
	})
}

// A request times out while it is answered.
func TestInterleavedTimeouts(t *testing.T) {
	for name, begin := range map[string]func(s *scene){
		"a write":         func(s *scene) { s.write("request", false, "d") },
		"a write of both": func(s *scene) { s.write("request", false, "d", "a") },
		"a read":          func(s *scene) { s.read("request", bothParts) },
	} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 1, func(w *interleave.World) func() {
				s := newScene(t, w, 1, 1)
				begin(s)
				w.Go("time", func() {
					now := s.r.calls.now.Add(s.r.cfg.RequestTicks)
					s.r.conf.tick()
					s.r.calls.tick(now)
					s.r.reads.expire(now)
					s.r.multi.expire(now)
					for _, g := range s.r.groups {
						g.wait.expire(now)
						g.turn(func() { g.expire(now) })
					}
				})
				return func() {
					s.once(fault.Timeout)
					s.left()
				}
			})
		})
	}
}

// A loop is held up behind a barrier that it has applied, until another server has stamped and this one begins again:
// the new epoch waits for the new barrier.
func TestInterleavedBarriers(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newStory(t, 3)
		r, other := s.replicas[0], s.replicas[1]
		busy := r.groups[0]
		s.electBeside(r, busy)
		require.Equal(t, applying, r.lead.phase)
		w.Go("loop 0", func() { r.Work(0) })
		w.Go("other leader", func() {
			interleave.Whole(func() {
				if busy.barrier.Load() != 0 || r.lead.groups[0].applied || r.seq.IsOpen() {
					return // the loop is elsewhere
				}
				s.electBeside(other, busy)
				require.True(t, other.Leading())
				s.put(other, "d")
				s.runBeside(busy)
				s.electBeside(r, busy)
			})
		})
		return func() {
			if r.seq.IsOpen() {
				require.GreaterOrEqual(t, r.seq.Last(), s.stores[1][0].Rev(), "a revision can be given out twice")
			}
		}
	})
}

// electBeside makes a server the leader of all groups while the loop of one is busy.
func (s *story) electBeside(leader *Replica, busy *group) {
	for _, r := range s.replicas {
		for _, g := range r.groups {
			if r == leader {
				g.order(campaign)
			} else {
				g.order(forgetLeader)
			}
		}
	}
	s.runBeside(busy)
}

// runBeside works and delivers until all is quiet, but for a busy loop, whose Raft others step.
func (s *story) runBeside(busy *group) {
	for quiet := false; !quiet; s.carry(true, 0, 0, -1) {
		quiet = len(s.wire) == 0
		for _, r := range s.replicas {
			for p, g := range r.groups {
				switch {
				case g == busy:
					g.turn(g.step)
				case g.in.woken:
					r.Work(p)
					quiet = false
				}
			}
		}
	}
}
