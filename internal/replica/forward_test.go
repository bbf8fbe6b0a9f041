package replica

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A server has just begun, as after a snapshot, and its groups hear of their
// leaders at once. Group 0 has published its own and not reported it when group
// 1 reports: calls sent to the leader in between stay in flight.
func TestCallsToANewLeaderAreNotFailed(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	var failed error
	r.groups[0].leaderSeen.Store(1)
	r.Submit(&Write{
		Command: command.Command{Kind: command.Put}, Parts: placement.Of(0),
		Done: func(out Outcome) { failed = out.Err },
	})
	g := r.groups[1]
	g.term.Store(2)
	g.leader = 1
	r.lead.report(g).run()
	require.NoError(t, failed)

	// They fail when the leader is another.
	r.groups[0].leaderSeen.Store(3)
	r.groups[0].term.Store(3)
	r.groups[0].leader = 3
	r.lead.report(r.groups[0]).run()
	require.ErrorIs(t, failed, fault.TimeoutLeaderFail)
}

// replace replaces a server's replica, as a snapshot does.
func (s *story) replace(server int) *Replica {
	old := s.replicas[server]
	cfg := old.cfg
	cfg.Origin++
	cfg.Calls = old.calls
	present, err := New(cfg)
	require.NoError(s.t, err)
	old.Stop(fault.TimeoutLeaderFail)
	s.replicas[server] = present
	return present
}

// A snapshot has replaced the replica that forwarded a write. The leader's
// answer is for the new one, which waits until it has applied the write, as the
// old one would have done.
func TestForwardedCallsOutliveAReplica(t *testing.T) {
	s := newStory(t, 3)
	old := s.replicas[1]
	for _, g := range old.groups {
		g.leaderSeen.Store(1)
	}
	answers := make([]error, 2)
	done := 0
	for i := range answers {
		old.Submit(&Write{
			Command: command.Command{Kind: command.Put}, Parts: placement.Of(0),
			Done: func(out Outcome) { answers[i], done = out.Err, done+1 },
		})
	}
	reply := func(r *Replica, i int) {
		body, err := encodeOutcome(Outcome{Result: apply.Result{Rev: 7, Response: &pb.PutResponse{}}, Index: 5})
		require.NoError(t, err)
		r.Receive(1, Packet{Reply: &Reply{ID: s.wire[i].packet.Call.ID, Body: body}})
	}
	reply(old, 0) // it waits to be applied

	present := s.replace(1)
	g := present.groups[1] // reports before group 0 knows a leader
	g.term.Store(2)
	g.leader = 1
	present.lead.report(g).run()
	reply(old, 1) // had come when old was the present one
	require.Zero(t, done, "they are told too early, or gave up: %v", answers)

	present.groups[0].applied.Store(5)
	present.groups[0].wait.check(present.groups[0])
	require.Equal(t, 2, done)
	require.Equal(t, []error{nil, nil}, answers)

	// Late inputs of the old one are still processed; a read has to ask the new
	// one.
	old.Submit(&Write{Command: command.Command{Kind: command.Put}, Parts: placement.Of(0)})
	require.NotNil(t, s.wire[len(s.wire)-1].packet.Call)
	old.awaitApplied(0, 6, old.deadline(), func(err error) { require.ErrorIs(t, err, fault.TimeoutLeaderFail); done++ })
	require.Equal(t, 3, done)
}

// regroup replaces a server's replica by one of another generation, whose partition 1 has another group.
func (s *story) regroup(server int) *Replica {
	s.replicas[server].cfg.Machine.LoadGroups(&membership.Groups{Generation: 2, Born: []uint32{0, 2}})
	return s.replace(server)
}

// The number of partitions has gone down and up again by the time at which a write is answered: the group that has it is gone,
// and has been applied here. That of its partition now is another one, which may never have so many entries.
func TestForwardedWritesOfGroupsThatAreGone(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	for _, g := range r.groups {
		g.leaderSeen.Store(1)
	}
	var answers []error
	for p := range 2 {
		for range 2 {
			r.Submit(&Write{
				Command: command.Command{Kind: command.Put}, Parts: placement.Of(p),
				Done: func(out Outcome) { answers = append(answers, out.Err) },
			})
		}
	}
	answer := func(r *Replica, i int) {
		body, err := encodeOutcome(Outcome{Result: apply.Result{Rev: 7, Response: &pb.PutResponse{}}, Group: i / 2, Index: 5})
		require.NoError(t, err)
		r.Receive(1, Packet{Reply: &Reply{ID: s.wire[i].packet.Call.ID, Body: body}})
	}
	answer(r, 0) // they wait to be applied
	answer(r, 2)
	require.Empty(t, answers)
	present := s.regroup(1)
	require.Len(t, answers, 1)
	answer(present, 1)
	answer(present, 3)
	require.Len(t, answers, 2, "those of the group that is there in both generations wait")
	require.Less(t, present.Closed(1), int64(7), "nothing is known of the one that is there now")
	present.groups[0].applied.Store(5)
	present.groups[0].wait.check(present.groups[0])
	require.Equal(t, make([]error, 4), answers)
}

// A write has come to a leader that goes on to a later generation with it. The server from which it comes
// isn't there yet: its group of that partition is another one, and what that has applied says nothing of the write.
func TestForwardedWritesOfGroupsThatAreNotThereYet(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	behind := s.replicas[1]
	behind.groups[1].applied.Store(1000) // more than the other ever has
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte("a")})
	require.NoError(t, err)
	var outs []Outcome
	behind.Submit(&Write{
		Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(1),
		Done: func(o Outcome) { outs = append(outs, o) },
	})
	s.carry(true, 2, 1, -1)
	s.regroup(2)
	s.elect(s.regroup(0))
	require.Len(t, behind.calls.landing, 1, "it has been answered")
	behind.Tick()
	require.Empty(t, outs, "its client couldn't read it here")

	present := s.regroup(1)
	rev := present.calls.landing[0].out.Rev
	present.closed[1].raise(rev - 1)
	present.Tick()
	require.Empty(t, outs)
	present.closed[1].raise(rev)
	present.Tick()
	require.Len(t, outs, 1)
	require.NoError(t, outs[0].Err)
	require.Equal(t, rev, outs[0].Rev)
}

// The number of partitions has gone down, and up again with the write. Between the two this server hasn't the partition.
func TestForwardedWritesOfPartitionsThatComeAgain(t *testing.T) {
	r := newStory(t, 3).replicas[1]
	answered := 0
	w := &Write{Parts: placement.Of(len(r.groups)), Done: func(out Outcome) {
		require.NoError(t, out.Err)
		answered++
	}}
	r.limit(w)
	r.calls.landed(w, Outcome{Group: noneOfTheSender, Result: apply.Result{Rev: 7}}, 0)
	require.Zero(t, answered, "its client couldn't read it here")
	r.AllClosed(6) // the end of this generation
	r.Tick()
	require.Zero(t, answered)
	r.AllClosed(7)
	r.Tick()
	require.Equal(t, 1, answered)
}

// A server that doesn't come to the group of a write doesn't know what its client can read. One that stops passes the answer on.
func TestForwardedWritesOfGroupsThatAreNotReached(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	var answers []error
	late := &Write{Parts: placement.Of(1), Done: func(out Outcome) { answers = append(answers, out.Err) }}
	r.limit(late)
	r.calls.landed(late, Outcome{Group: noneOfTheSender, Result: apply.Result{Rev: 7}}, 0)
	for range r.cfg.RequestTicks - 1 {
		r.Tick()
	}
	require.Empty(t, answers)
	r.Tick()
	require.Equal(t, []error{fault.Timeout}, answers)

	last := &Write{Parts: placement.Of(1), Done: late.Done}
	r.limit(last)
	r.calls.landed(last, Outcome{Group: noneOfTheSender, Result: apply.Result{Rev: 7}}, 0)
	r.calls.Stop(fault.Stopped)
	require.Equal(t, []error{fault.Timeout, nil}, answers)
}

// A read waits for a leader when a snapshot replaces the replica that was
// asked, and then this server leads: the read has to be asked again, at the new
// replica.
func TestAReadThatWaitsForALeaderEndsWithItsReplica(t *testing.T) {
	s := newStory(t, 3)
	old := s.replicas[1]
	var errs []error
	old.ReadPoint(placement.Of(0), func(err error) { errs = append(errs, err) })
	require.Len(t, old.calls.parked, 1)

	present := s.replace(1)
	s.elect(present)
	present.Tick()
	require.Equal(t, []error{fault.TimeoutLeaderFail}, errs)
	require.Empty(t, old.calls.parked)
}

// A leader that installs a snapshot doesn't know the outcome of writes in its
// log; those that were not there yet are not lost.
func TestWritesThatWereNotProposedOutliveAReplica(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[0]
	s.elect(r)
	var errs []error
	put := func() {
		w := &Write{Command: command.Command{Kind: command.Put}, Parts: placement.Of(0)}
		w.Done = func(out Outcome) { errs = append(errs, out.Err) }
		r.Submit(w)
	}
	put()
	r.Work(0) // proposed
	put()
	r.Stop(fault.TimeoutLeaderFail)
	require.Equal(t, []error{fault.TimeoutLeaderFail}, errs)
	require.Len(t, r.calls.parked, 1)
	r.calls.Stop(fault.Stopped)
	require.Equal(t, []error{fault.TimeoutLeaderFail, fault.Stopped}, errs)
}

// An answer to a call of an earlier incarnation may still come, and must not be
// taken for one to a call of this.
func TestAnswersToAnEarlierIncarnationAreIgnored(t *testing.T) {
	s := newStory(t, 3)
	cfg := s.replicas[1].cfg
	for life := range 2 {
		cfg.Origin, cfg.Calls = cfg.Origin+1, nil
		r, err := New(cfg)
		require.NoError(t, err)
		for _, g := range r.groups {
			g.leaderSeen.Store(1)
		}
		r.Submit(&Write{
			Command: command.Command{Kind: command.Put}, Parts: placement.Of(0),
			Done: func(out Outcome) { t.Error("taken") },
		})
		if life == 1 {
			first := s.wire[0].packet.Call.ID
			r.Receive(1, Packet{Reply: &Reply{ID: first, Err: fault.Stopped}})
		}
	}
	require.NotEqual(t, s.wire[0].packet.Call.ID, s.wire[1].packet.Call.ID)
}

// A step of moving keys may find that another server leads by now, and gets its
// outcome from that one.
func TestTheOutcomeOfAMoveIsForwarded(t *testing.T) {
	sent := Outcome{Result: apply.Result{Rev: 7, Response: &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: 7}}}, Index: 5}
	body, err := encodeOutcome(sent)
	require.NoError(t, err)
	got, err := decodeOutcome(command.Move, body)
	require.NoError(t, err)
	require.Equal(t, sent.Index, got.Index)
	require.EqualValues(t, 7, got.Response.(*pb.CompactionResponse).Header.Revision)
}

// The leader is fenced while it answers a call of another server, which goes on to the next leader with it: it isn't that one's state that was
// wrong.
func TestACallOfALeaderThatIsFencedGoesToTheNextOne(t *testing.T) {
	s := newStory(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	s.elect(leader)
	asked := 0
	leader.cfg.Serve = func(_ uint32, body []byte, reply func([]byte, error)) {
		if asked++; asked == 1 {
			reply(nil, fault.Fenced)
			return
		}
		reply(body, nil)
	}
	var errs []error
	r.CallLeader(MethodFirstFree, []byte("x"), nil, func(_ []byte, err error) { errs = append(errs, err) })
	s.quiesce()
	require.Empty(t, errs)
	require.Len(t, r.calls.parked, 1)
	r.Tick()
	s.quiesce()
	require.Equal(t, []error{nil}, errs)
}

// What a peer answers with may be anything: no group that can't be ends this server.
func TestTheOutcomeOfNoGroup(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	for _, g := range r.groups {
		g.leaderSeen.Store(1)
	}
	for i, group := range []uint64{noneOfTheSender, 1 << 63, math.MaxUint64, noneOfTheSender + 1} {
		var answers []error
		r.Submit(&Write{
			Command: command.Command{Kind: command.Put}, Parts: placement.Of(1),
			Done: func(out Outcome) { answers = append(answers, out.Err) },
		})
		body := binary.AppendUvarint(nil, group)
		body = binary.AppendUvarint(binary.AppendUvarint(body, 5), 7)
		r.Receive(1, Packet{Reply: &Reply{ID: s.wire[i].packet.Call.ID, Body: body}})
		if group == noneOfTheSender { // but this is one that this server may come to
			require.Empty(t, answers)
			continue
		}
		require.Len(t, answers, 1)
		require.Error(t, answers[0], "%d", group)
	}
}
