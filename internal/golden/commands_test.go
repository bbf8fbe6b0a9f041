//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
)

func marshal(t *testing.T, m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, err)
	return b
}

// plain are the requests that go into the log as etcd's messages.
func plain() map[command.Kind]proto.Message {
	put := &pb.PutRequest{Key: []byte("/a/k"), Value: []byte("v"), Lease: 77, PrevKv: true}
	return map[command.Kind]proto.Message{
		command.Put:         put,
		command.DeleteRange: &pb.DeleteRangeRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0"), PrevKv: true},
		command.Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("/a/k"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 3}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("/b/")}}}},
		},
		command.Compact:         &pb.CompactionRequest{Revision: 9, Physical: true},
		command.LeaseGrant:      &pb.LeaseGrantRequest{TTL: 600, ID: 77},
		command.LeaseRevoke:     &pb.LeaseRevokeRequest{ID: 77},
		command.LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 77, Remaining_TTL: 20}}},
		command.Alarm:           &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 2, Alarm: pb.AlarmType_NOSPACE},
		command.MemberPublish:   &pb.Member{ID: 1, Name: "one", ClientURLs: []string{"http://one:2379"}},
		command.SessionOpen:     &pb.LeaseGrantRequest{TTL: 60, ID: 99},
	}
}

// commands are those that a level has, each in all of its forms.
func commands(t *testing.T, level int) (list []command.Command) {
	requests := plain()
	body := map[command.Kind][]byte{}
	for k := command.Put; k <= command.MemberChange; k++ {
		if m := requests[k]; m != nil {
			body[k] = marshal(t, m)
			list = append(list, command.Command{Kind: k, Body: body[k]})
		}
	}
	call := func(k command.Kind, b []byte) []byte {
		c := command.Call{Kind: k, Client: "alice", Lease: 5, Name: "counter", Version: 12, Language: 2, Body: b}
		return c.AppendTo(nil)
	}
	read := marshal(t, &pb.RangeRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0"), Limit: 2})
	watch := marshal(t, &pb.WatchCreateRequest{Key: []byte("/a/k"), StartRevision: 4})
	add := func(k command.Kind, b []byte) { list = append(list, command.Command{Kind: k, Body: b}) }
	for _, k := range []command.Kind{command.Put, command.DeleteRange, command.Txn} {
		add(command.Extended, call(k, body[k]))
		q := command.Sequenced{Session: 99, Seq: 4, Pred: 3, Answered: 2, Kind: k, Body: body[k]}
		add(command.InSession, q.AppendTo(nil))
	}
	add(command.Extended, call(command.Range, read))
	add(command.Extended, call(command.Watch, watch))
	q := command.Sequenced{Session: 99, Seq: 300, Pred: 0, Answered: 299, Kind: command.Extended, Body: call(command.Put, body[command.Put])}
	add(command.InSession, q.AppendTo(nil))
	for _, s := range []command.Step{{From: []byte("/a/"), To: []byte("/b/")}, {From: []byte("/b/"), Last: true}} {
		add(command.Move, s.AppendTo(nil))
	}
	for op := membership.Add; op <= membership.Update; op++ {
		c := membership.Change{Op: op, MaxLearners: 1, Member: &pb.Member{ID: 3, PeerURLs: []string{"http://three:2380"}}}
		b, err := c.Encode()
		require.NoError(t, err)
		add(command.MemberChange, b)
	}
	return append(list, later(t, level)...)
}

// entries are log entries with these commands: each alone, as a rendezvous and as a batch.
func entries(t *testing.T, level int) (list []named) {
	cs := commands(t, level)
	entry := func(name string, e command.Entry) { list = append(list, named{name, e.AppendTo(nil)}) }
	for i, c := range cs {
		entry(fmt.Sprintf("%d %v", i, c.Kind), command.Entry{Origin: 0x123456789abcdef1, Seq: uint64(i), Commands: []command.Command{c}})
	}
	entry("rendezvous", command.Entry{Stamp: 1 << 40, Parts: placement.Of(0) | placement.Of(3), Origin: 7, Seq: 300, Commands: cs[:1]})
	entry("batch", command.Entry{Stamp: 12, Origin: 7, Seq: 1, Commands: cs})
	entry("barrier", command.Entry{Origin: 7, Seq: 2})
	for k := membership.AddVoter; k <= membership.RemoveServer; k++ {
		s := membership.Step{Kind: k, ID: 1 << 60, Number: 300, Generation: 4}
		list = append(list, named{"step " + s.String(), s.Encode()})
	}
	return list
}

func commandLines(t *testing.T, level int) string { return lines(entries(t, level)) }

func TestCommands(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		was := string(read("commands.txt"))
		require.Equal(t, was, commandLines(t, level), "the log's encoding of a level never changes")
		for line := range strings.Lines(was) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
			b, err := hex.DecodeString(text)
			require.NoError(t, err)
			decode := func(b []byte) error { _, err := command.Decode(b); return err }
			if strings.HasPrefix(name, "step ") {
				decode = func(b []byte) error { _, err := membership.DecodeStep(b); return err }
			} else {
				e, err := command.Decode(b)
				require.NoError(t, err, name)
				require.Equal(t, b, e.AppendTo(nil), name)
			}
			require.NoError(t, decode(b), name)
			for cut := range b {
				require.Error(t, decode(b[:cut]), "%s, the first %d of %d bytes", name, cut, len(b))
			}
		}
	})
}
