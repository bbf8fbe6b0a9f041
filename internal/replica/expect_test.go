package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
)

// expecting counts for each server how often it is told of a registration. It is ready when
// release is called.
func (s *story) expecting() (told []int, release func()) {
	told = make([]int, len(s.replicas))
	var waiting []func()
	for i, r := range s.replicas {
		r.cfg.Expect = func(e *command.Entry, ready func()) {
			for _, c := range e.Commands {
				require.Contains(s.t, string(c.Body), "/em/x")
				told[i]++
			}
			waiting = append(waiting, ready)
		}
	}
	return told, func() {
		for _, ready := range waiting {
			ready()
		}
		waiting = nil
	}
}

// plan submits a put as a server does that has it from a client.
func (s *story) plan(r *Replica, key, value string, done func()) {
	req := &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
	body, err := proto.Marshal(req)
	require.NoError(s.t, err)
	plan := r.cfg.Machine.Plan(command.Put, req, func() (string, int64) { return "client", 0 })
	r.Submit(&Write{Command: plan.Command(command.Put, body), Parts: plan.Parts, Done: func(out Outcome) {
		require.NoError(s.t, out.Err, key)
		done()
	}})
}

// A registration that a follower forwards isn't proposed before the leader is ready for it,
// and the other servers are told of it when it comes into their logs. They aren't told of
// any other write.
func TestServersAreToldOfRegistrationsBeforeTheyApplyThem(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	told, release := s.expecting()
	done := 0
	count := func() { done++ }

	s.plan(s.replicas[1], "d", "a plain key", count)
	s.put(s.replicas[1], "both")
	s.quiesce()
	require.Equal(t, 1, done)
	require.Equal(t, []int{0, 0, 0}, told)

	s.plan(s.replicas[1], "/em/x", `return { scope = { "/x/" }, operations = { { op = "put", prefix = "/x/" } }, put = function() return 1 end }`, count)
	s.quiesce()
	require.Equal(t, 1, done, "it is proposed before the leader is ready")
	require.Equal(t, []int{1, 0, 0}, told)

	release()
	s.quiesce()
	require.Equal(t, 2, done)
	for i, times := range told {
		require.Positive(t, times, "server %d", i+1)
	}
}
