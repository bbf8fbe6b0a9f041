//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/transport/raftwire"
)

// raftMessages are of all types that servers send to each other, and one in a form that
// raftwire carries as it is.
func raftMessages() (list []*raftpb.Message) {
	id := func(v uint64) *uint64 { return &v }
	for _, typ := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow, raftpb.MsgProp, raftpb.MsgSnap} {
		m := &raftpb.Message{Type: &typ, To: id(2), From: id(1), Term: id(7)}
		reject := true
		switch typ {
		case raftpb.MsgApp:
			normal, change := raftpb.EntryNormal, raftpb.EntryConfChange
			m.LogTerm, m.Index, m.Commit = id(6), id(300), id(299)
			m.Entries = []*raftpb.Entry{{Term: id(7), Index: id(301), Type: &normal, Data: []byte("data")}, {Term: id(7), Index: id(302), Type: &change, Data: []byte("change")}}
		case raftpb.MsgAppResp:
			m.Index, m.Reject, m.RejectHint, m.LogTerm = id(300), &reject, id(250), id(5)
		case raftpb.MsgVote, raftpb.MsgPreVote:
			m.LogTerm, m.Index, m.Context = id(6), id(300), []byte("CampaignTransfer")
		case raftpb.MsgHeartbeat:
			m.Commit = id(299)
		case raftpb.MsgSnap:
			m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: id(200), Term: id(6), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}}}
		}
		list = append(list, m)
	}
	return list
}

type message struct {
	name string
	m    proto.Message
}

func peerMessages(level int) []message {
	var raft [][]byte
	for i, m := range raftMessages() {
		raft = raftwire.Append(raft, uint32(i%3), m)
	}
	return append([]message{
		{"batch", &peerpb.Batch{
			Raft: raft, Confirm: &peerpb.Confirm{Round: 9, Terms: []uint64{7, 300}}, ConfirmAck: &peerpb.ConfirmAck{Round: 8, Ok: true},
			Closed: []*peerpb.Closed{{Group: 1, Index: 300, Revision: 1 << 40}}, AnswersLost: true, Settled: 4,
			Calls:   []*peerpb.Call{{Id: 5, Method: 16, Body: []byte("body"), TimeoutMs: 7000}},
			Replies: []*peerpb.Reply{{Id: 5, Fault: 18, Body: []byte("text")}},
		}},
		{"ping", &peerpb.Batch{Ping: 1 << 50}},
		{"pulse", &peerpb.Pulse{Pong: 1 << 50}},
		{"introduction", &peerpb.Introduction{
			Protocol: 1, Cluster: 0xc1, From: 1, To: 2, Data: 0xd1, Starts: 3, Start: 0xe1, Partitions: 4, Admitted: true, Fresh: true,
			Recorders: []*peerpb.Recorder{{Member: 3, Data: 0xd3}}, Met: []*peerpb.Met{{Member: 3, Data: 0xd3, Starts: 5, Start: 0xe3}},
			Name: "one", InitialCluster: "one=http://one:2380", InitialClusterToken: "token", Refusal: peerpb.Refusal_REMOVED,
		}},
		{"first chunk of a snapshot", &peerpb.Chunk{Header: &peerpb.SnapshotHeader{Size: 1 << 33, Positions: []*peerpb.Position{{Group: 1, Index: 300, Term: 7}}}}},
		{"chunk of a snapshot", &peerpb.Chunk{Data: []byte("data"), Crc: 0xabcdef01}},
		{"last chunk of a snapshot", &peerpb.Chunk{Data: []byte("data"), Crc: 0xabcdef01, Last: true, TotalCrc: 0x12345678}},
		{"installed", &peerpb.Installed{}},
	}, laterMessages(level)...)
}

// peerLines are the messages in the form in which they are sent.
func peerLines(t *testing.T, level int) string {
	var list []named
	for _, m := range peerMessages(level) {
		list = append(list, named{m.name, marshal(t, m.m)})
	}
	return lines(list)
}

func TestPeerMessages(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		was := string(read("peer.txt"))
		require.Equal(t, was, peerLines(t, level))
		want := peerMessages(level)
		for line := range strings.Lines(was) {
			name, text, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
			b, err := hex.DecodeString(text)
			require.NoError(t, err)
			require.Equal(t, want[0].name, name)
			m := want[0].m.ProtoReflect().New().Interface()
			require.NoError(t, proto.Unmarshal(b, m), name)
			require.True(t, proto.Equal(want[0].m, m), name)
			if batch, ok := m.(*peerpb.Batch); ok {
				requireRaft(t, batch.GetRaft())
			}
			want = want[1:]
		}
		require.Empty(t, want)
	})
}

func requireRaft(t *testing.T, list [][]byte) {
	for _, want := range raftMessages() {
		if len(list) == 0 {
			return // a ping
		}
		head := list[0]
		_, m, rest, err := raftwire.Next(list)
		require.NoError(t, err)
		require.True(t, proto.Equal(want, m), "%v\n%v", want, m)
		if want.GetType() == raftpb.MsgSnap { // a protobuf message as it is, without a length
			list = rest
			continue
		}
		for cut := range head {
			_, _, _, err := raftwire.Next([][]byte{head[:cut]})
			require.Error(t, err, "%v: the first %d of %d bytes", want.GetType(), cut, len(head))
		}
		list = rest
	}
	require.Empty(t, list)
}
