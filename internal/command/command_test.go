package command

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

func TestStampsFollowFromTheEntry(t *testing.T) {
	e := Entry{Stamp: 10, Commands: []Command{{Kind: Put}, {Kind: LeaseGrant}, {Kind: Txn}, {Kind: Compact}, {Kind: LeaseRevoke}}}
	require.Equal(t, 3, e.Stamps())
	var stamps []int64
	for i := range e.Commands {
		stamps = append(stamps, e.StampOf(i))
	}
	require.Equal(t, []int64{10, 11, 11, 12, 12}, stamps)

	e.Stamp = 0
	require.Zero(t, e.StampOf(2), "with one partition nothing is stamped")
}

func TestEntriesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Entry{
			Stamp:  rapid.Int64Range(0, maxStamp).Draw(t, "stamp"),
			Parts:  placement.Set(rapid.Uint64().Draw(t, "parts")),
			Origin: rapid.Uint64().Draw(t, "origin"),
			Seq:    rapid.Uint64().Draw(t, "seq"),
			Commands: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Command {
				return Command{
					Kind: Kind(rapid.Uint8Max(withUser-1).Draw(t, "kind")),
					User: rapid.Uint64().Draw(t, "user"),
					Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
				}
			}), 0, 5).Draw(t, "commands"),
		}
		b := e.AppendTo(nil)
		require.LessOrEqual(t, len(b), e.Size())
		back, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, e, back)
		require.Equal(t, e.Parts, PartsOf(b))

		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		_, err = Decode(b[:cut])
		require.Error(t, err, "the first %d of %d bytes", cut, len(b))
	})
}

func TestBodiesDoNotRunIntoEachOther(t *testing.T) {
	e := Entry{Commands: []Command{{Kind: Put, Body: []byte("one")}, {Kind: Put, Body: []byte("two")}}}
	back, err := Decode(e.AppendTo(nil))
	require.NoError(t, err)
	_ = append(back.Commands[0].Body, "xxxxx"...)
	require.Equal(t, "two", string(back.Commands[1].Body))
}

func TestDamageIsRefused(t *testing.T) {
	good := (&Entry{Stamp: 1, Commands: []Command{{Kind: Put, Body: []byte("x")}}}).AppendTo(nil)
	head := good[:13]
	for what, bad := range map[string][]byte{
		"ends early":                   nil,
		"format 8":                     {8},
		"bytes after the last command": append(bytes.Clone(good), 0),
		"is no revision":               append(append([]byte{1}, bytes.Repeat([]byte{0xff}, 9)...), append([]byte{1}, good[2:]...)...),
		"commands announced":           append(bytes.Clone(head[:12]), 0xff, 0xff, 0xff, 0x7f),
		"command 0 of 1":               append(bytes.Clone(head), byte(Put), 2, 'x'),
	} {
		_, err := Decode(bad)
		require.ErrorContains(t, err, what)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&Entry{Stamp: 300, Parts: 5, Origin: 1 << 60, Seq: 7, Commands: []Command{{Kind: Put, Body: []byte("body")}, {Kind: Alarm, User: 300}}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		parts := PartsOf(b)
		e, err := Decode(b)
		if err != nil {
			return
		}
		require.Equal(t, e.Parts, parts)
		again, err := Decode(e.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func TestCallsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Call{
			Kind:    Kind(rapid.Uint8().Draw(t, "kind")),
			Client:  rapid.String().Draw(t, "client"),
			Lease:   rapid.Int64().Draw(t, "lease"),
			Name:    rapid.String().Draw(t, "name"),
			Version: rapid.Int64().Draw(t, "version"), Language: rapid.IntRange(0, 9).Draw(t, "language"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		b := c.AppendTo(nil)
		back, err := DecodeCall(b)
		require.NoError(t, err)
		require.Equal(t, c, back)
		require.Equal(t, c.Kind, (&Command{Kind: Extended, Body: b}).Request())
		_, err = DecodeCall(b[:rapid.IntRange(0, len(b)-len(c.Body)-1).Draw(t, "cut")])
		require.Error(t, err)
	})
}

func FuzzDecodeCall(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&Call{Kind: Put, Client: "c", Lease: 5, Name: "counter", Version: 9, Body: []byte("body")}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCall(b)
		if err != nil {
			return
		}
		again, err := DecodeCall(c.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

func TestSequencedWritesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Sequenced{
			Session: rapid.Int64().Draw(t, "session"),
			Seq:     rapid.Uint64Min(1).Draw(t, "seq"),
			Kind:    rapid.SampledFrom([]Kind{Put, DeleteRange, Txn}).Draw(t, "kind"),
			Body:    rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		q.Pred = rapid.Uint64Max(q.Seq-1).Draw(t, "pred")
		q.Answered = rapid.Uint64Max(q.Seq-1).Draw(t, "answered")
		b := q.AppendTo(nil)
		back, err := DecodeSequenced(b)
		require.NoError(t, err)
		require.Equal(t, q, back)
		require.Equal(t, q.Kind, (&Command{Kind: InSession, Body: b}).Request())
		_, err = DecodeSequenced(b[:rapid.IntRange(0, len(b)-len(q.Body)-1).Draw(t, "cut")])
		require.Error(t, err)
	})
}

func TestASequencedCallAnswersWhatTheCallAsks(t *testing.T) {
	call := Call{Kind: Range, Client: "c", Name: "counter"}
	q := Sequenced{Session: 1, Seq: 1, Kind: Extended, Body: call.AppendTo(nil)}
	require.Equal(t, Range, (&Command{Kind: InSession, Body: q.AppendTo(nil)}).Request())
	require.Equal(t, InSession, (&Command{Kind: InSession, Body: []byte{1}}).Request(), "unreadable")
}

func TestNumbersThatContradictEachOtherAreRefused(t *testing.T) {
	head := make([]byte, 9)
	for what, numbers := range map[string][]byte{
		"no number":                  {0, 0, 0},
		"pred before the first":      {5, 5, 5},
		"answered before it is sent": {5, 0, 0},
		"answered below zero":        {5, 0, 6},
	} {
		_, err := DecodeSequenced(append(bytes.Clone(head), numbers...))
		require.ErrorIs(t, err, errNumbers, what)
	}
}

func FuzzDecodeSequenced(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&Sequenced{Session: 1 << 60, Seq: 300, Pred: 299, Answered: 7, Kind: Put, Body: []byte("body")}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := DecodeSequenced(b)
		if err != nil {
			return
		}
		again, err := DecodeSequenced(q.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, q, again)
	})
}

func BenchmarkDecode(b *testing.B) {
	e := Entry{Stamp: 1}
	for range 256 {
		e.Commands = append(e.Commands, Command{Kind: Put, Body: make([]byte, 300)})
	}
	raw := e.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func TestEachKindSaysWhichLevelBroughtIt(t *testing.T) {
	for k := Put; k < Kinds; k++ {
		require.NotEqual(t, "unknown", k.String(), "%d", k)
		require.NotZero(t, k.Since(), "%v", k)
		require.LessOrEqual(t, k.Since(), version.Newest, "%v", k)
		if k <= ClusterVersion {
			require.Equal(t, version.Level(1), k.Since(), "%v", k)
		} else {
			require.Greater(t, k.Since(), version.Level(1), "%v: no release of the first level knows it", k)
		}
	}
	require.Zero(t, Kinds.Since())
}

// A program that is too old for a command must not pass over it.
func TestAnEntryHasTheLevelOfItsCommands(t *testing.T) {
	raise := membership.VersionChange{Op: membership.Raise, From: 1, To: 2}
	lower := membership.VersionChange{Op: membership.Downgrade, To: 1}
	cancel := membership.VersionChange{Op: membership.Cancel}
	change := func(op membership.Op) []byte {
		b, err := (&membership.Change{Op: op, Member: &pb.Member{ID: 1}}).Encode()
		require.NoError(t, err)
		return b
	}
	for want, commands := range map[byte][][]Command{
		1: {nil, {{Kind: Put}}, {{Kind: MemberChange, Body: change(membership.Update)}}, {{Kind: ClusterVersion, Body: lower.Encode()}}, {{Kind: ClusterVersion, Body: cancel.Encode()}}, {{Kind: ClusterVersion}}},
		3: {{{Kind: Place}}, {{Kind: Auth}, {Kind: Place}}},
		2: {{{Kind: MemberChange, Body: change(membership.Reset)}}, {{Kind: Put}, {Kind: ClusterVersion, Body: raise.Encode()}}, {{Kind: MemberAnnounce}, {Kind: Put}}, {{Kind: Put, User: 7}}, {{Kind: Auth}}},
	} {
		for _, c := range commands {
			b := (&Entry{Commands: c}).AppendTo(nil)
			require.Equal(t, want, b[0], "%v", c)
			_, err := Decode(b)
			require.NoError(t, err)
		}
	}
	raise.To = version.Newest + 1
	b := (&Entry{Parts: 3, Commands: []Command{{Kind: ClusterVersion, Body: raise.Encode()}}}).AppendTo(nil)
	_, err := Decode(b)
	require.ErrorContains(t, err, "format 8, this is stoa "+version.Stoa+", which reads up to cluster version 0.7.0: start a release that knows level 8")
	require.Zero(t, PartsOf(b))
}
