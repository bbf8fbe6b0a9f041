package apply

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

func open(id int64) opening { return opening{&pb.LeaseGrantRequest{ID: id, TTL: 60}} }

// No more sessions than the bound are opened, by whatever server and whatever it has been
// through; those that are open go on.
func TestTooManySessionsAreRefused(t *testing.T) {
	r := newRig(2)
	r.bound(sessionBounds{sessions: 2, bytes: 1 << 20})
	require.NoError(t, r.apply(0, open(1))[0].Err)
	require.NoError(t, r.apply(0, open(2))[0].Err)
	refused := func(id int64) {
		t.Helper()
		err := r.apply(0, open(id))[0].Err
		require.ErrorIs(t, err, fault.TooManySessions)
		require.ErrorContains(t, err, "too many sessions: 2 are open")
		require.False(t, r.Leases.Has(id), "nothing of it is left behind")
	}
	refused(3)
	require.ErrorIs(t, r.apply(0, open(2))[0].Err, fault.TooManySessions)
	require.NoError(t, r.apply(0, &pb.LeaseGrantRequest{ID: 4, TTL: 60})[0].Err, "a lease is no session")

	cut := r.CutSessions()
	require.NoError(t, r.LoadSessions(cut.AddTo(nil)))
	refused(3)
	require.NoError(t, r.apply(10, &pb.LeaseRevokeRequest{ID: 1})[0].Err)
	require.NoError(t, r.apply(0, open(3))[0].Err)
	refused(5)
}

// A lease that wasn't granted for a session has no place in the tables.
func TestALeaseIsNoSession(t *testing.T) {
	r := newRig(1)
	r.apply(0, &pb.LeaseGrantRequest{ID: 7, TTL: 60})
	c := cmd(&pb.PutRequest{Key: []byte("a")})
	q := command.Sequenced{Session: 7, Seq: 1, Kind: c.Kind, Body: c.Body}
	var got Result
	r.entry(&command.Entry{Commands: []command.Command{{Kind: command.InSession, Body: q.AppendTo(nil)}}}, 1, func(_ int, r Result) { got = r })
	require.ErrorIs(t, got.Err, fault.SessionGone)
	require.Zero(t, r.Stores[0].Keys())
}

// Beyond the bound of all results together the sessions forget theirs that have been
// silent for the longest; what they have written doesn't take effect again.
func TestTheLongestSilentForgetFirst(t *testing.T) {
	r := newRig(1)
	r.bound(sessionBounds{sessions: 10, bytes: 7500})
	send := func(id int64, seq uint64) (got Result) {
		c := cmd(&pb.PutRequest{Key: []byte("a"), Value: make([]byte, 900), PrevKv: true})
		q := command.Sequenced{Session: id, Seq: seq, Kind: c.Kind, Body: c.Body}
		r.entry(&command.Entry{Commands: []command.Command{{Kind: command.InSession, Body: q.AppendTo(nil)}}}, 1, func(_ int, r Result) { got = r })
		return got
	}
	r.apply(0, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 900)})
	for id := int64(1); id <= 7; id++ { // seven results of about a thousand bytes
		require.NoError(t, r.apply(0, open(id))[0].Err)
		require.NoError(t, send(id, 1).Err)
	}
	require.NoError(t, send(1, 2).Err) // one more than there is room for; 2 and 3 have been silent for the longest
	writes := r.Stores[0].Get([]byte("a")).Version()
	for _, id := range []int64{2, 3} {
		require.ErrorIs(t, send(id, 1).Err, fault.ResultForgotten)
	}
	for _, id := range []int64{1, 4, 5, 6, 7} {
		require.NoError(t, send(id, 1).Err)
	}
	require.Equal(t, writes, r.Stores[0].Get([]byte("a")).Version(), "none took effect twice")
	require.LessOrEqual(t, r.sessions[0].bytes, 7500)
	require.NoError(t, send(2, 2).Err, "it goes on")
}

// What is forgotten is the same on a server that has been started again from what it had
// stored, at whatever time, as on one that hasn't (I6); and never is there more than the
// bound, of which the table keeps count.
func TestWhatIsForgottenOutlivesARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const sessions = 5
		machines := [2]*rig{newRig(2), newRig(2)}
		stored := map[string][]byte{}
		for _, m := range machines {
			m.bound(sessionBounds{sessions: sessions, bytes: 2000})
			for id := range int64(sessions) {
				for p := range m.sessions {
					m.sessions[p].open(id)
				}
			}
		}
		seqs := [sessions]uint64{}
		for rev := int64(2); rev < rapid.Int64Range(10, 200).Draw(t, "steps"); rev++ {
			id := rapid.Int64Range(0, sessions-1).Draw(t, "session")
			switch k := rapid.IntRange(0, 19).Draw(t, "step"); {
			case k < 16:
				seqs[id]++
				answered := rapid.Uint64Range(0, seqs[id]-1).Draw(t, "answered")
				body := make([]byte, rapid.IntRange(0, 300).Draw(t, "bytes"))
				p := rapid.IntRange(0, 1).Draw(t, "partition")
				for _, m := range machines {
					tb := &m.sessions[p]
					tb.remember(tb.byID[id], answered, outcome{seq: seqs[id], rev: rev, detail: &detail{kind: command.Put, body: body}})
				}
			case k == 16:
				for _, m := range machines {
					for p := range m.sessions {
						m.sessions[p].drop(id)
						m.sessions[p].open(id)
					}
				}
				seqs[id] = 0
			case k < 19:
				for _, m := range machines {
					x := execution{m: m.Machine, parts: m.Placement().All(), local: several}
					x.mergeSessions()
				}
			default:
				cut := machines[1].CutSessions()
				for name, value := range cut.AddTo(nil) {
					if stored[name] = value; value == nil {
						delete(stored, name)
					}
				}
				require.NoError(t, machines[1].LoadSessions(stored))
			}
			for p := range 2 {
				require.Equal(t, machines[0].SessionsDigest(p), machines[1].SessionsDigest(p), "partition %d", p)
				for _, m := range machines {
					size := 0
					for _, s := range m.sessions[p].byID {
						size += s.size()
					}
					require.Equal(t, size, m.sessions[p].bytes)
					require.LessOrEqual(t, size, 2000)
				}
			}
		}
	})
}

// fillSessions makes two partitions know different writes of so many sessions.
func fillSessions(r *rig, n int64) {
	for id := int64(1); id <= n; id++ {
		for p := range r.sessions {
			t := &r.sessions[p]
			t.open(id)
			t.remember(t.byID[id], 0, outcome{seq: uint64(p + 1), rev: id})
		}
	}
}

// All partitions wait while the tables are made equal, so that must not take time with
// the square of the sessions: it took more than half a minute for so many.
func TestManySessionsAreMergedAtOnce(t *testing.T) {
	const n = 80_000
	r := newRig(2)
	fillSessions(r, n)
	x := execution{m: r.Machine, parts: r.Placement().All(), local: several}
	began := time.Now()
	x.mergeSessions()
	require.Less(t, time.Since(began), 5*time.Second)
	for p := range r.sessions {
		require.Len(t, r.sessions[p].byID, n)
		for _, s := range r.sessions[p].byID {
			require.Len(t, s.results, 2)
		}
	}
	cut := r.CutSessions()
	require.Len(t, cut.AddTo(nil), 2*n)
}

func BenchmarkMergeSessions(b *testing.B) {
	for _, n := range []int64{1000, 5000, 20_000} {
		for _, kind := range []string{"different", "equal"} {
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					r := newRig(2)
					fillSessions(r, n)
					x := execution{m: r.Machine, parts: r.Placement().All(), local: several}
					if kind == "equal" {
						x.mergeSessions()
					}
					b.StartTimer()
					x.mergeSessions()
				}
			})
		}
	}
}
