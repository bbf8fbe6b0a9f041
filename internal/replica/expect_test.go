package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
)

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

// Servers are told of a registration when it comes into their logs, and of no other write.
func TestServersAreToldOfRegistrationsInTheirLogs(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	told := make([]int, len(s.replicas))
	for i, r := range s.replicas {
		r.cfg.Expect = func(e *command.Entry) {
			for _, c := range e.Commands {
				require.Contains(t, string(c.Body), "/em/x")
				told[i]++
			}
		}
	}
	done := 0
	count := func() { done++ }
	s.plan(s.replicas[1], "d", "a plain key", count)
	s.put(s.replicas[1], "both")
	s.quiesce()
	require.Equal(t, 1, done)
	require.Equal(t, []int{0, 0, 0}, told)

	s.plan(s.replicas[1], "/em/x", `return { scope = { "/x/" }, operations = { { op = "put", prefix = "/x/" } }, put = function() return 1 end }`, count)
	s.quiesce()
	require.Equal(t, 2, done)
	for i, times := range told {
		require.Positive(t, times, "server %d", i+1)
	}
}
