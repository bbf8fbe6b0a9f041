package check

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Invariant 1: whatever is reported in whatever order, a verdict has what a majority of the
// voters reported first, and there is one if there is such a majority; and a server is told that
// it differs only if it does.
func TestAVerdictIsThatOfAMajority(t *testing.T) {
	decided, split := 0, 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		voters := []uint64{1, 2, 3, 4, 5, 6, 7}[:1+rng.IntN(7)]
		at := Place{Group: 1, Term: 2, Index: seed}
		var reports []Report
		for id := uint64(1); id <= 9; id++ { // some are no voters
			reports = append(reports, Report{id, Version, at, Digest{Leases: uint64(rng.IntN(3))}})
		}
		rng.Shuffle(len(reports), func(i, j int) { reports[i], reports[j] = reports[j], reports[i] })
		var r Rounds
		var verdict *Verdict
		isSplit := false
		note := func(d Decision, v Verdict) {
			if d != Open {
				require.Nil(t, verdict, "one decision for a round")
				require.False(t, isSplit)
			}
			isSplit = isSplit || d == Split
			if d == Decided {
				verdict = &v
			}
		}
		for _, of := range reports {
			if of.Member == 1 {
				note(r.Executed(of, voters))
			} else {
				note(r.Told(of))
			}
			lie := of
			lie.Digest[Leases]++ // the second time it says something else
			note(r.Told(lie))
		}
		of := map[Digest][]uint64{}
		for _, report := range reports {
			if slices.Contains(voters, report.Member) {
				of[report.Digest] = append(of[report.Digest], report.Member)
			}
		}
		most := 0
		for _, members := range of {
			most = max(most, len(members))
		}
		require.Equal(t, 2*most > len(voters), verdict != nil)
		require.Equal(t, verdict == nil, isSplit)
		if verdict == nil {
			split++
			continue
		}
		decided++
		require.True(t, slices.IsSorted(verdict.Agree))
		for _, id := range verdict.Agree {
			require.Contains(t, of[verdict.Digest], id)
		}
		for _, report := range reports {
			var own Own
			own.Executed(at, report.Digest, voters)
			j, _ := own.Judge(*verdict)
			require.Equal(t, report.Digest != verdict.Digest, j == Differs)
			require.NotEqual(t, Unknown, j)
		}
	}
	require.Greater(t, decided, 1000)
	require.Greater(t, split, 1000)
}

func TestOnlyTheLastPlacesAreKept(t *testing.T) {
	var r Rounds
	var own Own
	for i := range uint64(3 * kept) {
		at := Place{Index: i}
		r.Told(Report{2, Version, at, Digest{}})
		own.Executed(at, Digest{}, []uint64{1, 2, 3})
	}
	require.Len(t, r.list, kept)
	require.Len(t, own.list, kept)
	j, _ := own.Judge(Verdict{Version: Version, Place: Place{Index: 3*kept - 1}, Agree: []uint64{1, 2}})
	require.Equal(t, Agrees, j)
	j, _ = own.Judge(Verdict{Version: Version, Place: Place{Index: 0}, Agree: []uint64{1, 2}})
	require.Equal(t, Unknown, j)
}

// A server that is started again reports all the checks of its log: that doesn't end the one
// that is under way.
func TestOldReportsPushNothingOut(t *testing.T) {
	var r Rounds
	voters, now := []uint64{1, 2, 3}, Place{Group: 4, Term: 9, Index: 1000}
	r.Executed(Report{1, Version, now, Digest{}}, voters)
	for i := range uint64(3 * kept) {
		d, _ := r.Told(Report{2, Version, Place{Group: 4, Term: 8, Index: i}, Digest{}})
		require.Equal(t, Open, d)
	}
	d, v := r.Told(Report{3, Version, now, Digest{}})
	require.Equal(t, Decided, d)
	require.Equal(t, []uint64{1, 3}, v.Agree)
}

func TestPartsThatDiffer(t *testing.T) {
	require.Empty(t, Digest{}.Differing(Digest{}))
	require.Equal(t, "keys, alarms", Digest{Keys: 1, Alarms: 2}.Differing(Digest{Leases: 0}))
}

func TestEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Verdict{Version: Version, Place: Place{rapid.Uint32().Draw(t, "group"), rapid.Uint64().Draw(t, "term"), rapid.Uint64().Draw(t, "index")}}
		for i := range v.Digest {
			v.Digest[i] = rapid.Uint64().Draw(t, "sum")
		}
		v.Agree = rapid.SliceOfNDistinct(rapid.Uint64(), 1, 9, rapid.ID[uint64]).Draw(t, "agree")
		slices.Sort(v.Agree)
		b := v.AppendTo(nil)
		got, err := DecodeVerdict(b)
		if err != nil || !slices.Equal(got.Agree, v.Agree) || got.Place != v.Place || got.Digest != v.Digest {
			t.Fatalf("%v, %v", got, err)
		}
		for cut := range b {
			if _, err := DecodeVerdict(b[:cut]); err == nil {
				t.Fatalf("the first %d of %d bytes are read", cut, len(b))
			}
		}
		report := Report{v.Agree[0], v.Version, v.Place, v.Digest}
		if back, err := DecodeReport(report.AppendTo(nil)); err != nil || back != report {
			t.Fatalf("%v, %v", back, err)
		}
	})
}

func TestWhatIsNotDecoded(t *testing.T) {
	v := Verdict{Version: Version, Agree: []uint64{1, 2}}
	_, err := DecodeReport(v.AppendTo(nil))
	require.Error(t, err, "a report is of one")
	v.Agree = []uint64{2, 2}
	_, err = DecodeVerdict(v.AppendTo(nil))
	require.Error(t, err, "each member counts once")
	v.Version = Version + 1
	_, err = DecodeVerdict(v.AppendTo(nil))
	require.ErrorIs(t, err, ErrOtherVersion)
	_, err = DecodeVersion(nil)
	require.Error(t, err)
	asked, err := DecodeVersion(AppendVersion(nil))
	require.NoError(t, err)
	require.EqualValues(t, Version, asked)
}

func FuzzDecodeVerdict(f *testing.F) {
	f.Add((&Verdict{Version: Version, Place: Place{1, 2, 3}, Agree: []uint64{1, 2}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := DecodeVerdict(b); err == nil {
			again, err := DecodeVerdict(v.AppendTo(nil))
			require.NoError(t, err)
			require.Equal(t, v, again)
		}
	})
}

// What a server began with a state that turned out to be wrong is known by the number of its fences, also when
// it serves again.
func TestFencesAreCounted(t *testing.T) {
	var f Fence
	began := f.Times()
	require.True(t, f.Judge(Differs, Verdict{Version: Version}))
	require.NotEqual(t, began, f.Times())
	f.Installed()
	require.True(t, f.Judge(Agrees, Verdict{Version: Version}))
	require.Nil(t, f.Now())
	require.NotEqual(t, began, f.Times(), "the state of before was wrong")
	again := f.Times()
	require.False(t, f.Judge(Agrees, Verdict{Version: Version}))
	require.Equal(t, again, f.Times())
}

// An operator makes a server a cluster of its own: the majority that it differed from is lost.
func TestOneThatIsAloneServes(t *testing.T) {
	var f Fence
	require.False(t, f.Alone())
	require.True(t, f.Judge(Differs, Verdict{Version: Version}))
	require.True(t, f.Alone())
	require.Nil(t, f.Now())
	require.True(t, f.Untold(), "operators are told all the same")
	require.True(t, f.Damaged())
	require.False(t, f.Alone(), "its own state is damaged")
	var byHand Fence
	byHand.Restore(Verdict{})
	require.False(t, byHand.Alone())
}
