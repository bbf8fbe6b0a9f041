package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// place is a cluster of registries with files, which call each other directly.
type place struct {
	t    *testing.T
	self []Self
	dirs []string
	regs map[ID]*Registry
	logs *observer.ObservedLogs
}

func newPlace(t *testing.T, size int) *place {
	p := &place{t: t, regs: map[ID]*Registry{}}
	var members []Member
	for i := range size {
		members = append(members, Member{ID: ID(i + 1), Name: fmt.Sprintf("s%d", i+1), PeerURLs: []string{"http://h" + fmt.Sprint(i+1)}})
	}
	for i := range size {
		p.dirs = append(p.dirs, t.TempDir())
		p.self = append(p.self, Self{
			Cluster: 7, Member: ID(i + 1), Name: members[i].Name, Members: members, Partitions: 2, InitialCluster: "s1=...", Token: "token",
		})
	}
	return p
}

// start opens a member's directory as its server does.
func (p *place) start(i int) *Registry {
	core, logs := observer.New(zapcore.InfoLevel)
	p.logs = logs
	r, err := Open(p.dirs[i], zap.New(core))
	require.NoError(p.t, err)
	if _, in := r.Record(); in {
		require.NoError(p.t, r.Resume())
		require.NoError(p.t, r.SetMembers(idsOf(p.self[i].Members), nil, 1))
	} else {
		require.NoError(p.t, r.Begin(p.self[i]))
	}
	p.regs[ID(i+1)] = r
	p.t.Cleanup(func() { p.stop(i) })
	return r
}

func idsOf(members []Member) (ids []ID) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func (p *place) stop(i int) {
	if r := p.regs[ID(i+1)]; r != nil {
		require.NoError(p.t, r.Close())
		delete(p.regs, ID(i+1))
	}
}

func (p *place) ask(_ context.Context, to Member, q *peerpb.Introduction) (*peerpb.Introduction, error) {
	r := p.regs[to.ID]
	if r == nil {
		return nil, errors.New("connection refused")
	}
	return r.Introduce(q)
}

// join waits for members that are all up.
func (p *place) join(is ...int) {
	p.t.Helper()
	done := make(chan error, len(is))
	for _, i := range is {
		r := p.regs[ID(i+1)]
		go func() {
			parts, err := r.Join(p.t.Context(), p.ask)
			if err == nil && parts != 2 {
				err = fmt.Errorf("%d partitions", parts)
			}
			done <- err
		}()
	}
	for range is {
		select {
		case err := <-done:
			require.NoError(p.t, err)
		case <-time.After(20 * time.Second):
			require.Fail(p.t, "not admitted")
		}
	}
}

// refused starts a member that must not be admitted.
func (p *place) refused(i int, says ...string) {
	p.t.Helper()
	r := p.start(i)
	_, err := r.Join(p.t.Context(), p.ask)
	require.Error(p.t, err)
	for _, say := range says {
		require.ErrorContains(p.t, err, say)
	}
	p.stop(i)
}

func TestAClusterBegins(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		p := newPlace(t, size)
		var all []int
		for i := range size {
			p.start(i)
			all = append(all, i)
		}
		p.join(all...)
		for i := range size {
			rec, in := p.regs[ID(i+1)].Record()
			require.True(t, in)
			require.Equal(t, Record{Cluster: 7, Member: ID(i + 1), Data: rec.Data, Starts: 1, Partitions: 2, Admitted: true,
				Members: p.self[0].Members, Peers: rec.Peers}, rec)
			require.NoError(t, p.regs[ID(i+1)].Begun())
		}
		// At a restart no member is asked.
		p.stop(0)
		rec, in := p.start(0).Record()
		require.True(t, in)
		require.True(t, rec.Begun)
		require.EqualValues(t, 2, rec.Starts)
	}
}

func TestRefusals(t *testing.T) {
	p := newPlace(t, 3)
	p.start(0)
	p.start(1)
	p.join(0, 1)
	third := p.self[2]

	p.self[2].Cluster, p.self[2].Token = 8, "another"
	p.refused(2, "is of another cluster", "--initial-cluster-token=token and this member with --initial-cluster-token=another")
	p.self[2].Token, p.self[2].InitialCluster = "token", "s3=..."
	p.refused(2, "--initial-cluster=s1=... and this member with --initial-cluster=s3=...", "has to be started with --initial-cluster-state=existing")
	p.stop(0) // a restarted one doesn't know with which flags it was bootstrapped
	p.stop(1)
	p.start(0)
	p.refused(2, "its cluster is 7 and this member's is 8", "has to be started with --initial-cluster-state=existing")
	p.self[2] = third
	p.start(1)

	p.start(2)
	p.join(2)
	p.stop(2)
	lost, err := os.ReadFile(filepath.Join(p.dirs[2], FileName))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(p.dirs[2], FileName)))
	p.refused(2, "member 3 has already been bootstrapped", "(http://h", "has met s3 with another data directory than "+p.dirs[2])
	require.NoError(t, os.WriteFile(filepath.Join(p.dirs[2], FileName), lost, 0o600))
	_, in := p.start(2).Record()
	require.True(t, in)
}

// A member whose directory was emptied before its cluster began: the others can't tell that from lost data, and there is no cluster yet that it could be
// removed from.
func TestEmptiedBeforeTheClusterBegins(t *testing.T) {
	p := newPlace(t, 3)
	p.start(0)
	require.NoError(t, p.start(2).askOne(t.Context(), p.ask, p.self[2].Members[0]))
	p.stop(2)
	require.NoError(t, os.Remove(filepath.Join(p.dirs[2], FileName)))
	p.refused(2, "member 3 has already been bootstrapped", "remove the data directories of all of them")
	for i := range 3 {
		p.stop(i)
		require.NoError(t, os.RemoveAll(filepath.Join(p.dirs[i], FileName)))
		p.start(i)
	}
	p.join(0, 1, 2)
}

// One answer is not enough, and that of a member without its record doesn't
// count.
func TestVouchers(t *testing.T) {
	p := newPlace(t, 3)
	p.start(0)
	p.start(1)
	p.join(0, 1)
	p.stop(1)
	r := p.start(2)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := r.Join(ctx, p.ask)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.start(1)
	p.join(2)

	p.stop(0)
	p.stop(2)
	require.NoError(t, os.Remove(filepath.Join(p.dirs[0], FileName)))
	require.NoError(t, os.Remove(filepath.Join(p.dirs[2], FileName)))
	one, err := Open(p.dirs[0], zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, one.Adopt(7, 1, 2))
	require.NoError(t, one.Close())
	p.start(0)
	p.stop(1)
	p.refused(2, "has already been bootstrapped", "s1")
}

// A cluster of five begins with three that are in each other's records: two that the
// third has met, but that haven't met each other, might be lost and come back unknown.
func TestFoundersAreInEachOthersRecords(t *testing.T) {
	p := newPlace(t, 5)
	a, b, c := p.start(0), p.start(1), p.start(2)
	introduce := func(from *Registry, to int) {
		t.Helper()
		require.NoError(t, from.askOne(t.Context(), p.ask, p.self[0].Members[to]))
	}
	admitted := func(r *Registry) bool {
		_, ok, err := r.admit()
		require.NoError(t, err)
		return ok
	}
	introduce(a, 1)
	introduce(a, 2)
	require.False(t, admitted(a))
	introduce(b, 2)
	introduce(c, 1)
	require.False(t, admitted(a), "it doesn't know yet")
	introduce(a, 1)
	introduce(a, 2)
	require.True(t, admitted(a))
	require.False(t, admitted(b), "it doesn't know that it is in the record of the first")
	introduce(b, 0)
	introduce(b, 2)
	require.False(t, admitted(b), "the third doesn't know that the first has recorded it")
	introduce(c, 0)
	introduce(b, 2)
	require.True(t, admitted(b))
}

func TestNumberOfPartitions(t *testing.T) {
	p := newPlace(t, 3)
	p.self[1].Partitions = 4
	a, b := p.start(0), p.start(1)
	require.ErrorContains(t, a.askOne(t.Context(), p.ask, p.self[0].Members[1]), "--partitions=4 and this member with --partitions=2")
	require.ErrorContains(t, b.askOne(t.Context(), p.ask, p.self[0].Members[0]), "--partitions=2 and this member with --partitions=4")
	p.start(2)
	p.join(0, 2)
	p.join(1) // with the number of the others

	// An agreed number also binds a member that hasn't been admitted.
	p = newPlace(t, 5)
	p.start(0)
	p.start(1)
	require.NoError(t, p.regs[1].askOne(t.Context(), p.ask, p.self[0].Members[1]))
	p.stop(1)
	p.self[1].Partitions = 4
	p.start(1)
	require.Equal(t, 2, p.regs[2].self.Partitions)
	require.Equal(t, 1, p.logs.FilterMessageSnippet("--partitions is not obeyed").Len())
	// One that never received the answer isn't bound, and isn't admitted
	// either.
	_, err := p.regs[2].Introduce(p.start(2).own(2))
	require.NoError(t, err)
	p.stop(2)
	p.self[2].Partitions = 4
	c := p.start(2)
	require.ErrorContains(t, c.askOne(t.Context(), p.ask, p.self[0].Members[1]), "--partitions=2")
}

func TestOlderCopies(t *testing.T) {
	p := newPlace(t, 2)
	a, b := p.start(0), p.start(1)
	p.join(0, 1)
	mark := b.Mark()
	require.NoError(t, a.Meet(2, mark))
	require.NoError(t, a.Meet(2, Mark{mark.Data, mark.Starts + 1, 5}))
	require.NoError(t, a.Meet(2, Mark{mark.Data, mark.Starts + 1, 5}), "again")
	var refused *Refused
	require.ErrorAs(t, a.Meet(2, mark), &refused)
	require.Equal(t, peerpb.Refusal_OLDER_DATA, refused.Why)
	require.ErrorAs(t, a.Meet(2, Mark{mark.Data, mark.Starts + 1, 6}), &refused, "as many starts, but another")
	require.ErrorContains(t, refused, "start 2 of it, and start 2 has been met already")
	require.ErrorAs(t, a.Meet(2, Mark{mark.Data + 1, 9, 1}), &refused)
	require.Equal(t, peerpb.Refusal_OTHER_DATA, refused.Why)
	// After a restart of the one that knows.
	p.stop(0)
	require.ErrorAs(t, p.start(0).Meet(2, mark), &refused)
}

func TestTheDirectoryIsTaken(t *testing.T) {
	p := newPlace(t, 1)
	p.start(0)
	_, err := Open(p.dirs[0], zap.NewNop())
	require.ErrorContains(t, err, p.dirs[0]+" is in use by another process")
	p.stop(0)
	require.NoError(t, os.WriteFile(filepath.Join(p.dirs[0], FileName), []byte("{"), 0o600))
	_, err = Open(p.dirs[0], zap.NewNop())
	require.ErrorContains(t, err, filepath.Join(p.dirs[0], FileName)+": the record of this member is damaged")
}

// An ID that can't be made durable isn't sent.
func TestAFullDisk(t *testing.T) {
	p := newPlace(t, 2)
	a, b := p.start(0), p.start(1)
	full := errors.New("no space left on device")
	b.save = func(*Record) error { return full }
	require.ErrorIs(t, a.askOne(t.Context(), p.ask, p.self[0].Members[1]), full)
	require.Empty(t, b.rec.Peers)
	_, _, err := a.admit()
	require.NoError(t, err)
	_, in := a.Record()
	require.False(t, in)
}

func TestTheWaitIsReportedOnce(t *testing.T) {
	p := newPlace(t, 3)
	r := p.start(0)
	ctx, cancel := context.WithTimeout(t.Context(), reportAfter+2*time.Second)
	defer cancel()
	_, err := r.Join(ctx, p.ask)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waits := p.logs.FilterMessageSnippet("waiting for other members").All()
	require.Len(t, waits, 1)
	require.Equal(t, []any{"s2 (http://h2): connection refused", "s3 (http://h3): connection refused"}, waits[0].ContextMap()["missing"])
}
