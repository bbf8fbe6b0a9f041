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
)

// answers counts the answers of a request.
type answers struct {
	count int
	err   error
}

func (a *answers) read(err error)    { a.count, a.err = a.count+1, err }
func (a *answers) write(out Outcome) { a.count, a.err = a.count+1, out.Err }

// newPut returns a write of key d, which lies in partition 0.
func newPut(t *testing.T, a *answers) *Write {
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte("d")})
	require.NoError(t, err)
	return &Write{Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(0), Done: a.write}
}

// takeOver makes a server the leader of all groups, against the one that is.
func (s *story) takeOver(by int) {
	for i, r := range s.replicas {
		for _, g := range r.groups {
			if i == by || !g.leading {
				g.order(forgetLeader)
			}
		}
	}
	s.elect(s.replicas[by])
}

// Submit looks whether this server stamps, and then gives the write to the
// group. The epoch may end in between, after which the write comes too late to
// be removed by that end.
func TestAWriteThatComesAsTheEpochEnds(t *testing.T) {
	s := newStory(t, 3)
	s.takeOver(0)
	s.takeOver(1)
	r := s.replicas[0]
	require.False(t, r.Leading())

	var plain, ofSession answers
	r.groups[0].accept(newPut(t, &plain))
	w := newPut(t, &ofSession)
	w.Session = true
	r.groups[0].accept(w)
	s.quiesce()
	require.Equal(t, answers{1, nil}, plain, "the leader carries it out")
	require.Equal(t, answers{1, fault.TimeoutLeaderFail}, ofSession)
	require.Zero(t, r.groups[0].pending.Load())
}

// A read's leadership has been confirmed, and the epoch ends before it begins to wait.
func TestAReadThatComesToWaitAsTheEpochEnds(t *testing.T) {
	s := newStory(t, 3)
	s.takeOver(0)
	r := s.replicas[0]
	var put answers
	r.Submit(newPut(t, &put))
	r.Work(0) // proposed: its stamp is outstanding in partition 0
	s.wire = nil
	s.put(r, "a")
	for range 20 { // partition 1 has a later stamp, committed
		r.Work(1)
		for _, e := range s.wire {
			if e.group == 1 {
				s.replicas[e.to-1].ReceiveRaft(1, e.raft)
			}
		}
		s.wire = nil
		for _, x := range s.replicas {
			x.Work(1)
		}
	}
	p := r.point(r.lead.published.Load())
	require.GreaterOrEqual(t, p.committed, r.seq.Floor(0), "there is something to wait for")
	s.takeOver(1)

	var read answers
	r.await(placement.Of(0), p.until, r.deadline(), read.read)
	require.Equal(t, answers{1, fault.LeaderChanged}, read)
}

// Every request ends when its timeout is over.
func TestRequestsEndInTime(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, s *story, a *answers){
		"write without quorum": func(t *testing.T, s *story, a *answers) {
			s.replicas[0].Submit(newPut(t, a))
			s.replicas[0].Work(0)
			require.Len(t, s.replicas[0].groups[0].waiting, 1)
		},
		"write behind others": func(t *testing.T, s *story, a *answers) {
			for range maxOpenEntries {
				s.replicas[0].Submit(newPut(t, new(answers)))
				s.replicas[0].Work(0)
			}
			s.replicas[0].Submit(newPut(t, a))
			s.replicas[0].Work(0)
			require.Len(t, s.replicas[0].groups[0].in.writes, 1)
		},
		"rendezvous": func(t *testing.T, s *story, a *answers) {
			w := newPut(t, a)
			w.Parts = s.replicas[0].cfg.Machine.Placement().All()
			s.replicas[0].Submit(w)
		},
		"write without leader": func(t *testing.T, s *story, a *answers) {
			s.replicas[1].groups[0].leaderSeen.Store(0)
			s.replicas[1].Submit(newPut(t, a))
		},
		"forwarded write":           func(t *testing.T, s *story, a *answers) { s.replicas[1].Submit(newPut(t, a)) },
		"read without confirmation": func(t *testing.T, s *story, a *answers) { s.replicas[0].ReadPoint(placement.Of(0), a.read) },
		"forwarded read":            func(t *testing.T, s *story, a *answers) { s.replicas[1].ReadPoint(placement.Of(0), a.read) },
		"read behind a forwarded one": func(t *testing.T, s *story, a *answers) {
			s.replicas[1].ReadPoint(placement.Of(0), func(error) {})
			s.replicas[1].ReadPoint(placement.Of(0), a.read)
		},
		"waiting to apply": func(t *testing.T, s *story, a *answers) {
			s.replicas[1].awaitApplied(0, 1000, s.replicas[1].deadline(), a.read)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := leading(t, 3)
			var a answers
			begin(t, s, &a)
			s.dead[2], s.dead[3] = true, true
			for tick := range int(s.replicas[0].cfg.RequestTicks) {
				require.Zero(t, a.count, "tick %d: %v", tick, a.err)
				// The clock alone: Raft would notice that its followers are gone.
				for _, r := range s.replicas {
					now := r.calls.now.Add(1)
					r.conf.tick()
					r.calls.tick(now)
					r.reads.expire(now)
					r.multi.expire(now)
					for _, g := range r.groups {
						g.turn(func() { g.expire(now) })
						g.wait.expire(now)
					}
				}
			}
			require.Equal(t, 1, a.count)
			require.True(t, fault.Passing(a.err) || fault.CodeOf(a.err) == fault.Timeout.Code(), "%v", a.err)
			require.Zero(t, s.replicas[0].multi.count)
			s.replicas[0].Stop(fault.Stopped)
			require.Equal(t, 1, a.count, "answered again")
		})
	}
}

// A read raises a closed revision that nothing has announced, and this server ceases to
// stamp. The watch hub must hear of it all the same: what is told later isn't higher.
func TestRevisionsClosedByAReaderAreAnnounced(t *testing.T) {
	s := leading(t, 3)
	r := s.replicas[0]
	announced := int64(0)
	r.cfg.Closed = func(p int, rev int64) { announced = max(announced, rev) }
	r.closed[0].raise(12)
	r.learnClosed(Closed{Group: 0, Revision: 12})
	require.EqualValues(t, 12, announced)
	r.closed[0].raise(13)
	r.Tick()
	require.EqualValues(t, 13, announced)
}

// An answer that the network doesn't accept delays its caller by a tick, not by
// a request's timeout.
func TestLostAnswersAreReported(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *story){
		"refused by the network": func(t *testing.T, s *story) {
			n := s.replicas[0].cfg.Network
			s.replicas[0].cfg.Network = refusing{n}
			s.quiesce()
			s.replicas[0].cfg.Network = n
		},
		"lost on the way": func(t *testing.T, s *story) {
			s.carry(true, 2, 1, -1)
			for n := 0; n < 10 && len(s.wire) == 0 || s.wire[0].packet.Reply == nil; n++ {
				for _, r := range s.replicas {
					s.work(r, -1)
				}
				s.carry(true, 0, 0, 0)
			}
			s.carry(false, 1, 2, -1)
			s.replicas[0].Unreachable(2)
			s.quiesce()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := leading(t, 3)
			var a answers
			s.replicas[1].Submit(newPut(t, &a))
			lose(t, s)
			require.Zero(t, a.count)
			s.replicas[0].Tick()
			s.quiesce()
			require.Equal(t, answers{1, fault.TimeoutConnLost}, a)
		})
	}
}

// refusing is a network that accepts no replies.
type refusing struct{ Network }

func (n refusing) Send(to uint64, p Packet) bool { return p.Reply == nil && n.Network.Send(to, p) }

// A call that the network doesn't accept has not begun: it is sent again.
func TestACallThatWasNotSentIsRetried(t *testing.T) {
	s := leading(t, 3)
	r := s.replicas[1]
	n := r.cfg.Network
	r.cfg.Network = deaf{n}
	var a answers
	r.Submit(newPut(t, &a))
	s.quiesce()
	require.Zero(t, a.count)
	r.cfg.Network = n
	r.Tick()
	s.quiesce()
	require.Equal(t, answers{1, nil}, a)
}

type deaf struct{ Network }

func (deaf) Send(uint64, Packet) bool { return false }

// Role gets beginnings and ends alternately, from any goroutine.
func TestRoleIsReportedInOrder(t *testing.T) {
	s := newStory(t, 3)
	told := ""
	s.replicas[0].cfg.Role = func(epoch uint64) { told += fmt.Sprint(epoch != 0, " ") }
	s.takeOver(0)
	s.takeOver(1)
	s.takeOver(0)
	s.replicas[0].Stop(fault.Stopped)
	require.Equal(t, "true false true false ", told)
}
