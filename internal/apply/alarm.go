package apply

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// alarms is the set of active alarms, immutable: it changes at a rendezvous of
// all partitions, and may be read at any time without a lock.
type alarms struct {
	active           []*pb.AlarmMember // by alarm, then member
	noSpace, corrupt bool
	corruptAll       bool // no member is known to be the one
}

func newAlarms(active []*pb.AlarmMember) *alarms {
	a := &alarms{active: active}
	for _, m := range active {
		a.noSpace = a.noSpace || m.GetAlarm() == pb.AlarmType_NOSPACE
		a.corrupt = a.corrupt || m.GetAlarm() == pb.AlarmType_CORRUPT
		a.corruptAll = a.corruptAll || m.GetAlarm() == pb.AlarmType_CORRUPT && m.GetMemberID() == 0
	}
	return a
}

func compareAlarms(a, b *pb.AlarmMember) int {
	return cmp.Or(cmp.Compare(a.GetAlarm(), b.GetAlarm()), cmp.Compare(a.GetMemberID(), b.GetMemberID()))
}

// Alarms returns the active alarms. The slice and its elements are shared.
func (m *Machine) Alarms() []*pb.AlarmMember { return m.alarms.Load().active }

// LoadAlarms sets the active alarms after a restart.
func (m *Machine) LoadAlarms(active []*pb.AlarmMember) {
	active = slices.Clone(active)
	slices.SortFunc(active, compareAlarms)
	m.alarms.Store(newAlarms(active))
}

// admit refuses the commands that an alarm forbids: under NOSPACE those that take
// space, under CORRUPT all but those that help to recover. From level 6 on a member that has
// raised CORRUPT for itself is fenced, and the others go on; the alarm of member 0 is for all.
// For a transaction the decision needs its body; see txnCommand.
func (x *execution) admit(k command.Kind) error {
	a := x.m.alarms.Load()
	switch k {
	case command.Alarm, command.LeaseCheckpoint, command.MemberPublish, command.MemberAnnounce, command.MemberChange, command.ClusterVersion, command.Move, command.Place, command.Resize, command.Auth, command.Quota, command.Check, command.Verdict:
		return nil
	}
	if a.corruptAll || a.corrupt && !x.m.Checks() {
		return fault.Corrupt
	}
	if a.noSpace && k.TakesSpace() {
		return fault.NoSpace
	}
	return nil
}

func (x *execution) alarm(req *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if req.GetAction() != pb.AlarmRequest_GET {
		if err := x.user.MustBeRoot(); err != nil {
			return nil, err
		}
	}
	resp := &pb.AlarmResponse{Header: x.header(false)}
	active := x.m.Alarms()
	want := &pb.AlarmMember{MemberID: req.GetMemberID(), Alarm: req.GetAlarm()}
	at, there := slices.BinarySearchFunc(active, want, compareAlarms)
	switch req.GetAction() {
	case pb.AlarmRequest_GET:
		for _, a := range active {
			if req.GetAlarm() == pb.AlarmType_NONE || req.GetAlarm() == a.GetAlarm() {
				resp.Alarms = append(resp.Alarms, a)
			}
		}
	case pb.AlarmRequest_ACTIVATE:
		if want.Alarm == pb.AlarmType_NONE {
			break
		}
		if !there {
			x.m.alarms.Store(newAlarms(slices.Insert(slices.Clone(active), at, want)))
		}
		resp.Alarms = append(resp.Alarms, want)
	case pb.AlarmRequest_DEACTIVATE:
		if there {
			x.m.alarms.Store(newAlarms(slices.Delete(slices.Clone(active), at, at+1)))
			resp.Alarms = append(resp.Alarms, want)
		}
	}
	return resp, nil
}
