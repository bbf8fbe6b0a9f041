package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

func (l *List) after(t *testing.T, c VersionChange) *List {
	t.Helper()
	next, err := l.NextVersion(c)
	require.NoError(t, err)
	return next
}

func TestTheVersionRisesAndIsHeldDown(t *testing.T) {
	l := OfIDs(1, 2)
	raise := VersionChange{Op: Raise, From: 1, To: 2}
	require.Equal(t, version.Level(1), l.Level)
	_, err := l.NextVersion(VersionChange{Op: Cancel})
	require.ErrorIs(t, err, fault.NoDowngrade)
	_, err = l.NextVersion(VersionChange{Op: Downgrade, To: 0})
	require.ErrorIs(t, err, fault.BadDowngradeTarget)

	l = l.after(t, raise)
	require.Equal(t, version.Level(2), l.Level)
	require.Same(t, l, l.after(t, raise), "proposed twice")
	require.Same(t, l, l.after(t, VersionChange{Op: Raise, From: 2, To: 1}), "it doesn't go down")

	for _, to := range []version.Level{0, 2, 3} {
		_, err = l.NextVersion(VersionChange{Op: Downgrade, To: to})
		require.ErrorIs(t, err, fault.BadDowngradeTarget, "%d", to)
	}
	l = l.after(t, VersionChange{Op: Downgrade, To: 1})
	require.Equal(t, version.Level(1), l.Level)
	require.True(t, l.Downgrading)
	_, err = l.NextVersion(VersionChange{Op: Downgrade, To: 1})
	require.ErrorIs(t, err, fault.DowngradeInProcess)
	l = l.after(t, VersionChange{Op: Cancel})
	require.False(t, l.Downgrading)
	require.Equal(t, version.Level(1), l.Level)
	require.Equal(t, version.Level(2), l.after(t, raise).Level)
}

func TestWhenTheVersionIsDueToChange(t *testing.T) {
	old, now := version.First, version.Known{Oldest: 1, Newest: 2}
	at := func(level version.Level, downgrading bool) *List {
		return &List{Level: level, Downgrading: downgrading}
	}
	for _, tc := range []struct {
		list    *List
		members []version.Known
		want    VersionChange
	}{
		{at(1, false), []version.Known{now}, VersionChange{Op: Raise, From: 1, To: 2}},
		{at(1, false), []version.Known{now, now, old}, VersionChange{}},
		{at(2, false), []version.Known{now, now}, VersionChange{}},
		{at(1, true), []version.Known{now, now}, VersionChange{}},
		{at(1, true), []version.Known{now, old}, VersionChange{Op: Cancel}},
		{at(1, false), []version.Known{now, {Oldest: 3, Newest: 3}}, VersionChange{}},
	} {
		c, needed := tc.list.DueVersion(tc.members)
		require.Equal(t, tc.want != VersionChange{}, needed, "%v %v", tc.list, tc.members)
		if needed {
			require.Equal(t, tc.want, c)
		}
	}
}

func TestReleasesAreAnnouncedFromTheSecondLevelOn(t *testing.T) {
	l := OfIDs(1, 2)
	a := Announcement{Member: &pb.Member{ID: 2, Name: "two", ClientURLs: []string{"http://two"}}, Release: "0.2.0"}
	_, err := l.Announce(a)
	require.ErrorIs(t, err, fault.VersionTooLow)

	low := l
	l = l.after(t, VersionChange{Op: Raise, From: 1, To: 2})
	next, err := l.Announce(a)
	require.NoError(t, err)
	require.Equal(t, map[uint64]string{2: "0.2.0"}, next.Releases)
	require.Equal(t, "two", next.Find(2).GetName())
	require.Empty(t, l.Releases, "lists don't change")
	_, err = l.Announce(Announcement{Member: &pb.Member{ID: 3}})
	require.ErrorIs(t, err, fault.MemberNotFound)

	gone, err := next.Next(Change{Op: Remove, Member: &pb.Member{ID: 2}})
	require.NoError(t, err)
	require.Empty(t, gone.Releases)
	require.Equal(t, version.Level(2), gone.Level)
	require.Len(t, next.Releases, 1)
	require.Empty(t, next.after(t, VersionChange{Op: Downgrade, To: 1}).Releases, "a file of the first level has none")
	require.Equal(t, version.Level(1), low.Level)
}

func TestVersionChangesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := VersionChange{
			Op:   VersionOp(rapid.IntRange(1, int(Cancel)).Draw(t, "op")),
			From: version.Level(rapid.Uint64().Draw(t, "from")), To: version.Level(rapid.Uint64().Draw(t, "to")),
		}
		b := c.Encode()
		back, err := DecodeVersion(b)
		require.NoError(t, err)
		require.Equal(t, c, back)
		_, err = DecodeVersion(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")])
		require.Error(t, err)
		_, err = DecodeVersion(append(b, 0))
		require.Error(t, err)

		a := Announcement{Release: rapid.String().Draw(t, "release"), Member: &pb.Member{ID: rapid.Uint64Min(1).Draw(t, "id"), Name: "n"}}
		b, err = a.Encode()
		require.NoError(t, err)
		again, err := DecodeAnnouncement(b)
		require.NoError(t, err)
		require.Equal(t, a.Release, again.Release)
		require.True(t, proto.Equal(a.Member, again.Member))
		_, err = DecodeAnnouncement(b[:rapid.IntRange(0, len(a.Release)+3).Draw(t, "cut")])
		require.Error(t, err)
	})
}

func FuzzDecodeVersion(f *testing.F) {
	f.Add((&VersionChange{Op: Raise, From: 1, To: 2}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeVersion(b)
		if err != nil {
			return
		}
		again, err := DecodeVersion(c.Encode())
		require.NoError(t, err)
		require.Equal(t, c, again)
		_, _ = DecodeAnnouncement(b)
	})
}
