package replica

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/wal"
)

// hanging is a disk that writes nothing while it hangs.
type hanging struct {
	hangs bool
	held  []func()
}

func (h *hanging) Append(_ int, _ []wal.Record, durable func()) {
	switch {
	case durable == nil:
	case h.hangs:
		h.held = append(h.held, durable)
	default:
		durable()
	}
}

func (h *hanging) wake() {
	h.hangs = false
	held := h.held
	h.held = nil
	for _, durable := range held {
		durable()
	}
}

// A leader whose disk hangs hands its groups over in time for requests that come meanwhile. If the others' hang as well, it waits with them,
// and so it does if nobody could be elected without it.
func TestALeaderWhoseDiskHangsHandsItsGroupsOver(t *testing.T) {
	for name, servers := range map[string]int{"its own": 3, "all": 3, "one of two": 2} {
		t.Run(name, func(t *testing.T) {
			all, stays := name == "all", name != "its own"
			s := newStory(t, servers)
			s.elect(s.replicas[0])
			var disks []*hanging
			for i, r := range s.replicas {
				disks = append(disks, &hanging{hangs: i == 0 || all})
				r.cfg.Disk = disks[i]
			}
			leader := s.replicas[0]
			body, err := proto.Marshal(&pb.PutRequest{Key: []byte("d")})
			require.NoError(t, err)
			var answers []error
			put := func(r *Replica) {
				r.Submit(&Write{
					Command: command.Command{Kind: command.Put, Body: body}, Parts: placement.Of(0),
					Done: func(out Outcome) { answers = append(answers, out.Err) },
				})
				s.quiesce()
			}
			tick := func(n int64) {
				for range n {
					for _, r := range s.replicas {
						r.Tick()
					}
					s.quiesce()
				}
			}
			tick(3)
			put(leader)
			tick(leader.diskPatience() - 2)
			require.True(t, leader.Leading(), "it is patient")
			require.Empty(t, answers)
			tick(int64(leader.cfg.ElectionTicks))
			require.Equal(t, stays, leader.Leading())
			if stays {
				for _, d := range disks {
					d.wake()
				}
				s.quiesce()
				require.Equal(t, []error{nil}, answers)
				return
			}
			require.Len(t, answers, 1)
			require.Error(t, answers[0], "whether it took effect isn't known")
			at := slices.IndexFunc(s.replicas, (*Replica).Leading)
			require.Positive(t, at)
			put(s.replicas[3-at])
			require.NoError(t, answers[1])
			disks[0].wake()
			tick(1)
			require.Equal(t, s.replicas[at].groups[0].applied.Load(), leader.groups[0].applied.Load())
		})
	}
}
