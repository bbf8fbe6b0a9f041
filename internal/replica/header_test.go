package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// Once a write is answered, the server's revision, which is in the headers of answers without one of their own, isn't
// below the write's.
func TestTheRevisionIsNotBelowAnAnsweredWrite(t *testing.T) {
	for partitions := 1; partitions <= 2; partitions++ {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			s := newStoryOf(t, 1, partitions)
			r := s.replicas[0]
			s.elect(r)
			answered := 0
			write := func(kind command.Kind, req proto.Message, parts placement.Set) {
				body, err := proto.Marshal(req)
				require.NoError(t, err)
				r.Submit(&Write{Command: command.Command{Kind: kind, Body: body}, Parts: parts, Done: func(out Outcome) {
					require.NoError(t, out.Err)
					require.GreaterOrEqual(t, r.Revision(), out.Rev)
					answered++
				}})
			}
			key := []byte("k")
			home := placement.Of(r.cfg.Machine.Placement().Partition(key))
			for range 3 { // in one entry, or in several that are committed together
				write(command.Put, &pb.PutRequest{Key: key}, home)
			}
			write(command.DeleteRange, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, r.all())
			for range 3 {
				s.work(r, -1)
			}
			require.Equal(t, 4, answered)
		})
	}
}

// Nor is that of a follower which is still applying what was committed behind the write.
func TestTheRevisionOfAFollowerIsNotBelowAnAnsweredWrite(t *testing.T) {
	s := newStory(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	s.elect(leader)
	p := r.cfg.Machine.Placement().Partition([]byte("k"))
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte("k")})
	require.NoError(t, err)
	var rev int64
	put := func(r *Replica) {
		r.Submit(&Write{Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(p), Done: func(out Outcome) {
			require.NoError(t, out.Err)
			require.GreaterOrEqual(t, r.Revision(), out.Rev)
			if r != leader {
				rev = out.Rev
			}
		}})
	}
	put(r)
	s.carry(true, 2, 1, -1)
	s.work(leader, -1)
	put(leader) // in an entry of its own
	for range 5 {
		s.work(leader, -1)
		s.carry(true, 1, 3, -1)
		s.work(s.replicas[2], -1)
		s.carry(true, 3, 1, -1)
	}
	s.carry(true, 1, 2, p) // both entries are committed
	r.cfg.Machine.Sink = changes(func(int64) {
		if r.groups[p].applied.Load() > 0 && len(r.groups[p].committed) == 1 {
			s.carry(true, 1, 2, -1) // the answer comes, behind the first of them
		}
	})
	s.work(r, -1)
	require.Positive(t, rev)
}

// Nor is it below what a follower shows, to watches and to reads that need no leader, while it applies what was committed behind that.
func TestTheRevisionOfAFollowerIsNotBelowWhatItShows(t *testing.T) {
	s := newStory(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	s.elect(leader)
	p := r.cfg.Machine.Placement().Partition([]byte("k"))
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte("k")})
	require.NoError(t, err)
	for range 3 {
		leader.Submit(&Write{Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(p), Done: func(Outcome) {}})
		s.work(leader, -1) // in an entry of its own
	}
	for range 5 {
		s.work(leader, -1)
		s.carry(true, 1, 3, -1)
		s.work(s.replicas[2], -1)
		s.carry(true, 3, 1, -1)
	}
	s.carry(true, 1, 2, p)
	var shown []int64
	r.cfg.Machine.Sink = changes(func(rev int64) {
		if n := len(shown); n > 0 {
			require.GreaterOrEqual(t, r.Revision(), shown[n-1])
		}
		shown = append(shown, rev)
	})
	s.work(r, -1)
	require.Len(t, shown, 3)
}

// Nor is it below the header of an answer to a command that writes nothing: that is at what the leader knew to be committed, of which this server
// may have applied nothing yet.
func TestTheRevisionIsNotBelowAnAnswerWithoutOne(t *testing.T) {
	s := newStory(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	s.elect(leader)
	leader.seq.Commit(7)
	out := Outcome{Result: leader.dated(command.LeaseGrant, apply.Result{}), Index: 1}
	require.EqualValues(t, 7, out.Rev)
	require.EqualValues(t, 7, leader.Revision())
	answered := false
	r.calls.landed(&Write{Command: command.Command{Kind: command.LeaseGrant}, Done: func(Outcome) {
		answered = true
		require.EqualValues(t, 7, r.Revision())
	}}, out, r.generation())
	require.True(t, answered)
	require.Less(t, r.Closed(0), int64(7))
}

// changes is a sink.
type changes func(rev int64)

func (f changes) Changes(_ int, rev int64, _ []store.Change) { f(rev) }

// Nor does it go back by a restart, if nothing is applied behind that.
func TestTheRevisionAfterARestart(t *testing.T) {
	for partitions := 1; partitions <= 2; partitions++ {
		s := newStoryOf(t, 1, partitions)
		r := s.replicas[0]
		s.elect(r)
		s.put(r, "d")
		s.quiesce()
		require.Greater(t, r.Revision(), int64(1))
		again, err := New(r.cfg)
		require.NoError(t, err)
		require.Equal(t, r.Revision(), again.Revision())
	}
}

// A server that stops before it has applied a write which the leader has answered closes nothing: what it still announces to watches would be a
// revision whose events they haven't got.
func TestAServerThatStopsClosesNothingBeyondWhatItHasApplied(t *testing.T) {
	s := newStory(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	s.elect(leader)
	p := r.cfg.Machine.Placement().Partition([]byte("k"))
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte("k")})
	require.NoError(t, err)
	rev := int64(0)
	r.Submit(&Write{Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(p), Done: func(out Outcome) {
		require.NoError(t, out.Err)
		rev = out.Rev
	}})
	s.carry(true, 2, 1, -1)
	for range 5 {
		s.work(leader, -1)
		s.carry(true, 1, 3, -1)
		s.work(s.replicas[2], -1)
		s.carry(true, 3, 1, -1)
	}
	s.carry(true, 1, 2, -1) // the answer, and entries that nobody applies any more
	r.Stop(fault.Stopped)
	require.Positive(t, rev)
	require.Less(t, r.Closed(p), rev)
	require.Less(t, s.stores[1][p].Rev(), rev)
}
