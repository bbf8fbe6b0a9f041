package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestStories tells what servers say of checks, and what follows. Commands:
//
//	check at=INDEX voters=(...)     the servers below execute a check there
//	NAME=DIGEST ...                 what each of them has
//	tell at=INDEX [version=N]       the leader, server 1, hears of these, in this order
//	NAME ...
//	judge at=INDEX digest=DIGEST agree=(...) [version=N]   all servers read a verdict
//	expire keep=N                   the leader gives up older rounds
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := world{servers: map[uint64]*server{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.run(t, d) })
	})
}

type world struct {
	rounds  Rounds // of the leader, server 1
	servers map[uint64]*server
}

type server struct {
	own   Own
	found map[Place]Digest
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	switch d.Cmd {
	case "check":
		w.check(t, d, &out)
	case "tell":
		w.tell(t, d, &out)
	case "judge":
		v := Verdict{Version: versionOf(t, d), Place: placeOf(t, d), Agree: ids(t, d, "agree")}
		var sum uint64
		d.ScanArgs(t, "digest", &sum)
		v.Digest[Keys] = sum
		for id := uint64(1); id <= 9; id++ {
			if s := w.servers[id]; s != nil {
				j, own := s.own.Judge(v)
				fmt.Fprintf(&out, "%d %v", id, j)
				if j == Differs {
					fmt.Fprintf(&out, " in %s", own.Differing(v.Digest))
				}
				fmt.Fprintln(&out)
			}
		}
	case "expire":
		var keep int
		d.ScanArgs(t, "keep", &keep)
		if decision, at := w.rounds.Expire(keep); decision == Split {
			fmt.Fprintf(&out, "split at %v\n", at)
		}
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return out.String()
}

func (w *world) check(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	at, voters := placeOf(t, d), ids(t, d, "voters")
	for _, word := range strings.Fields(d.Input) {
		var id, sum uint64
		_, err := fmt.Sscanf(word, "%d=%d", &id, &sum)
		require.NoError(t, err)
		if w.servers[id] == nil {
			w.servers[id] = &server{found: map[Place]Digest{}}
		}
		s := w.servers[id]
		digest := Digest{Keys: sum}
		if !s.own.Executed(at, digest, voters) {
			fmt.Fprintf(out, "%d has executed it\n", id)
			continue
		}
		s.found[at] = digest
		if id == 1 {
			decided(out, id, first(w.rounds.Executed(Report{1, Version, at, digest}, voters)))
		}
	}
}

func (w *world) tell(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	at := placeOf(t, d)
	for _, word := range strings.Fields(d.Input) {
		var id uint64
		_, err := fmt.Sscanf(word, "%d", &id)
		require.NoError(t, err)
		decided(out, id, first(w.rounds.Told(Report{id, versionOf(t, d), at, w.servers[id].found[at]})))
	}
}

type outcome struct {
	Decision
	Verdict
}

func first(d Decision, v Verdict) outcome { return outcome{d, v} }

func decided(out *strings.Builder, id uint64, o outcome) {
	switch o.Decision {
	case Decided:
		fmt.Fprintf(out, "%d: verdict %d by %v\n", id, o.Digest[Keys], o.Agree)
	case Split:
		fmt.Fprintf(out, "%d: split\n", id)
	default:
		fmt.Fprintf(out, "%d: open\n", id)
	}
}

func placeOf(t *testing.T, d *datadriven.TestData) Place {
	var index uint64
	d.ScanArgs(t, "at", &index)
	return Place{Group: 0, Term: 2, Index: index}
}

func versionOf(t *testing.T, d *datadriven.TestData) uint64 {
	v := uint64(Version)
	d.MaybeScanArgs(t, "version", &v)
	return v
}

func ids(t *testing.T, d *datadriven.TestData, name string) (list []uint64) {
	arg, ok := d.Arg(name)
	require.True(t, ok, name)
	for i := range arg.Vals {
		var id uint64
		arg.Scan(t, i, &id)
		list = append(list, id)
	}
	return list
}
