package sim

import (
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// busyAlarms raises NOSPACE in the name of any server, at any time, and lowers it again: what clients write in between is
// refused.
func (c *cluster) busyAlarms() *meddler {
	return &meddler{
		c: c, name: "alarms",
		draw: func(*server) command.Command {
			action := pick(c.loop, []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE, pb.AlarmRequest_DEACTIVATE})
			return c.noSpace(action, 1+c.loop.rng.Uint64N(3))
		},
		done: func(error) {},
	}
}

func (c *cluster) noSpace(action pb.AlarmRequest_AlarmAction, member uint64) command.Command {
	body, err := proto.Marshal(&pb.AlarmRequest{Action: action, MemberID: member, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		c.fail("alarm", "%v", err)
	}
	return command.Command{Kind: command.Alarm, User: c.own(), Body: body}
}

// lower has nobody raise NOSPACE any more.
func (c *cluster) lower() {
	if c.alarms == nil {
		return
	}
	lowered := c.waitFor(equalAfter, func() bool {
		l := c.leader().life
		if l == nil || !l.core.replica.Leading() {
			return false
		}
		for _, a := range l.core.machine.Alarms() {
			if a.GetAlarm() == pb.AlarmType_NOSPACE {
				l.core.replica.Submit(&replica.Write{
					Command: c.noSpace(pb.AlarmRequest_DEACTIVATE, a.GetMemberID()), Parts: l.core.machine.Placement().All(), System: true,
					Done: func(replica.Outcome) {},
				})
				return false
			}
		}
		return true
	})
	if !lowered {
		c.fail("liveness", "%v after everything has healed, NOSPACE is still raised", equalAfter)
	}
}
