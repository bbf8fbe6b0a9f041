package apply

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// Beyond the bounds the oldest results are forgotten, and only they.
func TestWhatIsRememberedOfASessionIsBounded(t *testing.T) {
	table := &newRig(1).sessions[0]
	table.open(7)
	s := table.byID[7]
	for seq := range uint64(2 * maxResults) {
		table.remember(s, 0, outcome{seq: seq + 1, rev: int64(seq + 2)})
	}
	require.Len(t, s.results, maxResults)
	require.Nil(t, s.find(maxResults))
	require.EqualValues(t, maxResults+2, s.find(maxResults+1).rev)
	require.EqualValues(t, 2*maxResults+1, s.find(2*maxResults).rev)

	table.remember(s, 0, outcome{seq: 5000, detail: &detail{body: make([]byte, maxResultBytes-10)}})
	require.Len(t, s.results, maxResults)
	table.remember(s, 0, outcome{seq: 5001, detail: &detail{body: make([]byte, 20)}})
	require.Len(t, s.results, 1, "all that came before the large one went with it")
	require.Equal(t, 20, s.bytes)
	table.remember(s, 0, outcome{seq: 5002, detail: &detail{body: make([]byte, maxResultBytes+1)}})
	require.Empty(t, s.results, "too large by itself")
	require.Zero(t, s.bytes)
	require.EqualValues(t, 5002, s.last)

	table.remember(s, 5002, outcome{seq: 5003})
	require.Len(t, s.results, 1)
	table.remember(s, 4000, outcome{seq: 5004})
	require.EqualValues(t, 5002, s.answered, "it never goes back")
}

// A write whose result was too large to keep took effect; it must not again.
func TestAResultThatIsTooLargeIsForgotten(t *testing.T) {
	r := newRig(1)
	r.apply(0, opening{&pb.LeaseGrantRequest{ID: 7, TTL: 60}})
	send := func(seq uint64, value []byte) (got Result) {
		c := cmd(&pb.PutRequest{Key: []byte("a"), Value: value, PrevKv: true})
		q := command.Sequenced{Session: 7, Seq: seq, Kind: c.Kind, Body: c.Body}
		e := command.Entry{Commands: []command.Command{{Kind: command.InSession, Body: q.AppendTo(nil)}}}
		r.entry(&e, 1, func(_ int, r Result) { got = r })
		return got
	}
	require.NoError(t, send(1, make([]byte, maxResultBytes)).Err)
	second := send(2, []byte("small"))
	require.Len(t, second.Response.(*pb.PutResponse).PrevKv.Value, maxResultBytes)
	require.ErrorIs(t, send(2, []byte("small")).Err, fault.ResultForgotten)
	require.ErrorIs(t, send(1, nil).Err, fault.ResultForgotten)
	require.Equal(t, "small", string(send(3, nil).Response.(*pb.PutResponse).PrevKv.Value))
}

// A cut is encoded while its session goes on.
func TestACutKeepsWhatItTook(t *testing.T) {
	m := newRig(1).Machine
	table := &m.sessions[0]
	table.open(7)
	s := table.byID[7]
	table.remember(s, 0, outcome{seq: 1, rev: 2})
	table.remember(s, 0, outcome{seq: 2, rev: 3, detail: &detail{kind: command.Txn, body: []byte("two")}})
	cut := m.CutSessions()
	want := s.encode()
	for seq := uint64(3); seq < 100; seq++ {
		table.remember(s, seq-2, outcome{seq: seq, rev: int64(seq), detail: &detail{body: []byte("more")}})
	}
	got := cut.AddTo(nil)
	require.Equal(t, []string{"session/000/0000000000000007"}, slices.Collect(maps.Keys(got)))
	require.Equal(t, want, got["session/000/0000000000000007"])
}

// What is stored by others is left alone, what can't be read is refused by name.
func TestDamagedSessionsAreRefused(t *testing.T) {
	m := newRig(2).Machine
	good := (&session{last: 9, answered: 2, results: []outcome{{seq: 5, rev: 7}, {seq: 9, rev: 3, detail: &detail{kind: command.Put, code: 7, body: []byte("why")}}}}).encode()
	require.NoError(t, m.LoadSessions(map[string][]byte{"placement": {1}, "session/001/fffffffffffffff9": good}))
	require.EqualValues(t, 9, m.SessionLast(1, -7))
	require.EqualValues(t, 0, m.SessionLast(0, -7))
	for name, value := range map[string][]byte{
		"session/002/0000000000000007": good,
		"session/x":                    good,
		"session/000/0000000000000007": good[:len(good)-1],
		"session/000/0000000000000008": append(slices.Clone(good), 0),
		"session/000/0000000000000009": {2},
		"session/000/000000000000000a": nil,
	} {
		require.ErrorContains(t, m.LoadSessions(map[string][]byte{name: value}), name)
	}
}

func FuzzDecodeSession(f *testing.F) {
	f.Add((&session{last: 9, answered: 2, results: []outcome{{seq: 5, rev: 7}, {seq: 9, rev: 3, detail: &detail{kind: command.Put, code: 7, body: []byte("why")}}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSession(b)
		if err != nil {
			return
		}
		again, err := decodeSession(s.encode())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

// Tools revoke leases that they don't know: those of sessions are listed only if asked for, and
// those that are over, of whichever kind, never.
func TestGranted(t *testing.T) {
	r := newRig(2)
	for i, req := range []proto.Message{
		&pb.LeaseGrantRequest{ID: 4, TTL: 60}, opening{&pb.LeaseGrantRequest{ID: 3, TTL: 60}},
		&pb.LeaseGrantRequest{ID: 2, TTL: 60}, opening{&pb.LeaseGrantRequest{ID: 1, TTL: 60}}, &pb.LeaseGrantRequest{ID: 5, TTL: 60},
	} {
		e := &command.Entry{Stamp: int64(i + 2), Commands: []command.Command{cmd(req)}}
		r.execute(e, r.Placement().All(), func(_ int, res Result) { require.NoError(t, res.Err) })
	}
	r.Leases.End(5)
	ids := func(sessions bool) (ids []int64) {
		list, err := r.Granted(sessions)
		require.NoError(t, err)
		for _, l := range list {
			require.EqualValues(t, 60, l.TTL)
			ids = append(ids, l.ID)
		}
		return ids
	}
	require.Equal(t, []int64{2, 4}, ids(false))
	require.Equal(t, []int64{1, 2, 3, 4}, ids(true))
	r.apply(10, &pb.LeaseRevokeRequest{ID: 3})
	require.Equal(t, []int64{1, 2, 4}, ids(true))
}

// A machine whose life is over, or that a verdict has fenced, tells nothing of leases.
func TestLeasesAreNotToldByWhoMayNotAnswer(t *testing.T) {
	r := newRig(2)
	r.apply(2, &pb.LeaseGrantRequest{ID: 4, TTL: 60})
	_, found, err := r.Lease(4)
	require.NoError(t, err)
	require.True(t, found)
	r.Retire()
	_, _, err = r.Lease(4)
	require.ErrorIs(t, err, fault.Moved)
	_, err = r.Granted(false)
	require.ErrorIs(t, err, fault.Moved)
}
