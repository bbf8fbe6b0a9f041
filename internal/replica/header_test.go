package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
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
