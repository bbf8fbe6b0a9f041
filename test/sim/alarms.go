package sim

import (
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// busyAlarms raises NOSPACE in the name of any server, at any time, and lowers it again: what clients write in between is
// refused.
func (c *cluster) busyAlarms() *meddler {
	return &meddler{
		c: c, name: "alarms",
		draw: func(*server) command.Command {
			action := pick(c.loop, []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE, pb.AlarmRequest_DEACTIVATE})
			body, err := proto.Marshal(&pb.AlarmRequest{Action: action, MemberID: 1 + c.loop.rng.Uint64N(3), Alarm: pb.AlarmType_NOSPACE})
			if err != nil {
				c.fail("alarm", "%v", err)
			}
			return command.Command{Kind: command.Alarm, User: c.own(), Body: body}
		},
		done: func(error) {},
	}
}

// lower is the operator, who lowers NOSPACE in the end. A request to raise it may still be on its way.
func (c *cluster) lower() {
	c.loop.after(c.loop.between(50*time.Millisecond, 200*time.Millisecond), "lower", 0, 0, c.lower)
	l := c.leader().life
	if !c.quiet || l == nil || !l.core.replica.Leading() {
		return
	}
	for _, a := range l.core.machine.Alarms() {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			l.core.lower(a)
		}
	}
}

// lower asks for the end of an alarm.
func (c *core) lower(a *pb.AlarmMember) {
	c.propose(0, command.Alarm, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: a.GetMemberID(), Alarm: a.GetAlarm()}, func(error) {})
}
