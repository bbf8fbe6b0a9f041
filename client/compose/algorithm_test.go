package compose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// driver drives the algorithm as core does, without anything around it.
type driver struct {
	a       *algorithm
	waiting []asked
	sent    []asked // in order
	under   []asked // without an answer
}

type asked struct {
	n, target int
	kind      kind
	act       action
}

func (d *driver) arrive(n, target int, k kind) action {
	q := asked{n: n, target: target, kind: k}
	q.act = d.a.arrive(target, k)
	d.went(q)
	return q.act
}

func (d *driver) went(q asked) {
	if q.act == wait {
		d.waiting = append(d.waiting, q)
		return
	}
	d.sent, d.under = append(d.sent, q), append(d.under, q)
}

// answer answers the first request in flight, and sends those that waited for
// it.
func (d *driver) answer(failed bool) (went []asked) {
	q := d.under[0]
	d.under = d.under[1:]
	d.a.responded(1)
	if failed {
		d.a.failed(q.target)
	}
	for len(d.waiting) > 0 {
		q := d.waiting[0]
		if q.act = d.a.retry(q.target, q.kind); q.act == wait {
			break
		}
		d.waiting = d.waiting[1:]
		d.went(q)
		went = append(went, q)
	}
	return went
}

var clusterNames = []string{"A", "B", "C", "V"}

func (q asked) String() string {
	return fmt.Sprintf("%s %s: %s", [...]string{"read", "update", "synced-read"}[q.kind], clusterNames[q.target], q.act)
}

// TestAlgorithm runs scripts: each line is a request, an answer (of the oldest
// in flight), a failure of it, or an event that was seen.
func TestAlgorithm(t *testing.T) {
	datadriven.RunTest(t, "testdata/algorithm.txt", func(t *testing.T, d *datadriven.TestData) string {
		run := &driver{a: newAlgorithm([]int{0, 1, 2, 0})}
		var out strings.Builder
		for i, line := range strings.Split(d.Input, "\n") {
			verb, name, _ := strings.Cut(line, " ")
			at := strings.Index("ABCV", name)
			switch verb {
			case "read", "synced":
				k := map[string]kind{"read": read, "synced": syncedRead}[verb]
				run.arrive(i, at, k)
				fmt.Fprintf(&out, "%s\n", asked{target: at, kind: k, act: lastAct(run)})
			case "update":
				run.arrive(i, at, update)
				fmt.Fprintf(&out, "%s\n", asked{target: at, kind: update, act: lastAct(run)})
			case "answer", "fail":
				fmt.Fprintf(&out, "%s\n", verb)
				for _, q := range run.answer(verb == "fail") {
					fmt.Fprintf(&out, "  %s\n", q)
				}
			case "saw":
				run.a.saw(at)
				fmt.Fprintf(&out, "saw %s\n", name)
			default:
				d.Fatalf(t, "what is %q?", line)
			}
		}
		a := run.a
		fmt.Fprintf(&out, "switches=%d syncs=%d resyncs=%d waits=%d\n", a.switches, a.syncs, a.resyncs, a.waits)
		return out.String()
	})
}

func lastAct(d *driver) action {
	if len(d.waiting) > 0 {
		return wait
	}
	return d.sent[len(d.sent)-1].act
}

// TestAlgorithmDrawn drives the algorithm at random and checks its invariants.
func TestAlgorithmDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		faults := rapid.Bool().Draw(t, "faults")
		cluster := []int{0, 1, 2, 1}
		d := &driver{a: newAlgorithm(cluster)}
		led := []bool{false, false, false} // something has led since the cluster was last left, failed, or overtaken
		at, checked := -1, 0
		check := func() {
			for ; checked < len(d.sent); checked++ {
				q := d.sent[checked]
				require.Equal(t, checked, q.n, "the order of sending is the order of arrival")
				if cluster[q.target] != at {
					led, at = []bool{false, false, false}, cluster[q.target]
				}
				switch q.act {
				case sendSynced, sendLeading:
					led[at] = true
				case send:
					require.True(t, led[at] || q.kind == update, "a local read that nothing leads")
				}
			}
			for _, q := range d.under {
				require.Equal(t, d.a.last, q.target, "requests are outstanding to one cluster")
			}
			require.Equal(t, len(d.under), d.a.outstanding)
			require.Equal(t, len(d.waiting), d.a.waiting)
			require.False(t, len(d.waiting) > 0 && len(d.under) == 0, "a request waits although none is in flight")
		}
		n := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				d.arrive(n, rapid.IntRange(0, 3).Draw(t, "target"), kind(rapid.IntRange(0, 1).Draw(t, "kind")))
				n++
			case 3, 4:
				if len(d.under) > 0 {
					failed := faults && rapid.Bool().Draw(t, "failed")
					if failed {
						check()
						led[cluster[d.under[0].target]] = false
					}
					d.answer(failed)
				}
			case 5:
				if faults {
					check()
					seen := rapid.IntRange(0, 3).Draw(t, "seen")
					d.a.saw(seen)
					if at >= 0 && at != cluster[seen] {
						led[at] = false
					}
				}
			}
			check()
		}
		for len(d.under) > 0 {
			d.answer(false)
			check()
		}
		require.Equal(t, n, len(d.sent), "all are sent in the end")
		if !faults {
			leads := int64(0)
			for i, q := range d.sent {
				if (i == 0 || cluster[d.sent[i-1].target] != cluster[q.target]) && q.kind == read {
					leads++
				}
			}
			require.Equal(t, leads, d.a.syncs, "a sync for each switch that a read makes, and no other")
			require.Zero(t, d.a.resyncs)
		}
	})
}
