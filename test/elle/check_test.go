package elle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// txn, add and read are short for transactions of the stories.
func txn(client int, sent, answered int64, steps ...Step) *Txn {
	return &Txn{Client: client, Sent: sent, Answered: answered, Steps: steps}
}

func (t *Txn) as(o Outcome) *Txn { t.Outcome = o; return t }

func add(key string, value int) Step     { return Step{Key: key, Append: value} }
func read(key string, found ...int) Step { return Step{Key: key, Read: found} }
func lists(x, y []int) map[string][]int  { return map[string][]int{"x": x, "y": y} }
func ints(of ...int) []int               { return of }

// One story for each anomaly of the paper (§2 and §4.3), and for what is none.
var stories = []struct {
	name  string
	txns  []*Txn
	final map[string][]int
	kind  string // "" if it is strictly serializable
}{
	{name: "one after the other", final: lists(ints(1, 2), ints(3)), txns: []*Txn{
		txn(1, 0, 1, add("x", 1)), txn(2, 2, 3, read("x", 1), add("x", 2), read("x", 1, 2)), txn(1, 4, 5, read("x", 1, 2), add("y", 3)),
	}},
	{name: "at the same time", final: lists(ints(2, 1), nil), txns: []*Txn{
		txn(1, 0, 9, add("x", 1)), txn(2, 0, 9, add("x", 2)), txn(3, 0, 9, read("x", 2)), txn(4, 0, 9, read("x")),
	}},
	{name: "what has no answer may have happened long after", final: lists(ints(1, 2), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 2)).as(Unknown), txn(2, 8, 9, read("x"), add("x", 1)),
	}},
	{name: "and what has none may not have happened", final: lists(ints(1), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 2)).as(Unknown), txn(2, 8, 9, add("x", 1)), txn(3, 0, 1, add("x", 3)).as(Failed),
	}},
	{name: "an acknowledged append is gone", kind: "lost", final: lists(ints(1), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 1)), txn(1, 2, 3, add("x", 2)),
	}},
	{name: "half of one without an answer is gone", kind: "lost", final: lists(ints(1), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 1), add("y", 2)).as(Unknown),
	}},
	{name: "nobody appended it", kind: "garbage", final: lists(ints(7), nil)},
	{name: "twice", kind: "duplicate", final: lists(ints(1, 1), nil), txns: []*Txn{txn(1, 0, 1, add("x", 1))}},
	{name: "aborted read", kind: "G1a", final: lists(ints(1), nil), txns: []*Txn{txn(1, 0, 1, add("x", 1)).as(Failed)}},
	{name: "intermediate read", kind: "G1b", final: lists(ints(1, 2), nil), txns: []*Txn{
		txn(1, 0, 9, add("x", 1), add("x", 2)), txn(2, 0, 9, read("x", 1)),
	}},
	{name: "torn apart", kind: "G0", final: lists(ints(1, 3, 2), nil), txns: []*Txn{
		txn(1, 0, 9, add("x", 1), add("x", 2)), txn(2, 0, 9, add("x", 3)),
	}},
	{name: "dirty write", kind: "G0", final: lists(ints(1, 2), ints(4, 3)), txns: []*Txn{
		txn(1, 0, 9, add("x", 1), add("y", 3)), txn(2, 0, 9, add("x", 2), add("y", 4)),
	}},
	{name: "circular information flow", kind: "G1c", final: lists(ints(1), ints(2)), txns: []*Txn{
		txn(1, 0, 9, add("x", 1), read("y", 2)), txn(2, 0, 9, add("y", 2), read("x", 1)),
	}},
	{name: "read skew", kind: "G-single", final: lists(ints(1), ints(2)), txns: []*Txn{
		txn(1, 0, 9, add("x", 1), add("y", 2)), txn(2, 0, 9, read("x", 1), read("y")),
	}},
	{name: "lost update", kind: "G-single", final: lists(ints(1, 2), nil), txns: []*Txn{
		txn(1, 0, 9, read("x"), add("x", 1)), txn(2, 0, 9, read("x"), add("x", 2)),
	}},
	{name: "write skew", kind: "G2", final: lists(ints(1), ints(2)), txns: []*Txn{
		txn(1, 0, 9, read("y"), add("x", 1)), txn(2, 0, 9, read("x"), add("y", 2)),
	}},
	{name: "long fork", kind: "G2", final: lists(ints(1), ints(2)), txns: []*Txn{
		txn(1, 0, 9, add("x", 1)), txn(2, 0, 9, add("y", 2)),
		txn(3, 0, 9, read("x", 1), read("y")), txn(4, 0, 9, read("x"), read("y", 2)),
	}},
	{name: "it doesn't see itself", kind: "internal", final: lists(ints(1, 2), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 1)), txn(1, 2, 3, add("x", 2), read("x", 1)),
	}},
	{name: "two orders", kind: "incompatible-order", final: lists(ints(1, 2), nil), txns: []*Txn{
		txn(1, 0, 9, add("x", 1)), txn(2, 0, 9, add("x", 2)), txn(3, 0, 9, read("x", 2, 1)),
	}},
	{name: "stale read", kind: "G-single-realtime", final: lists(ints(1), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 1)), txn(2, 2, 3, read("x")),
	}},
	{name: "an order against time", kind: "G0-realtime", final: lists(ints(2, 1), nil), txns: []*Txn{
		txn(1, 0, 1, add("x", 1)), txn(2, 2, 3, add("x", 2)),
	}},
	{name: "a read of the future", kind: "G1c-realtime", final: lists(ints(1), nil), txns: []*Txn{
		txn(1, 0, 1, read("x", 1)), txn(2, 2, 3, add("x", 1)),
	}},
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			err := Check(s.txns, s.final)
			if s.kind == "" {
				require.NoError(t, err)
				return
			}
			var a *Anomaly
			require.ErrorAs(t, err, &a)
			require.Equal(t, s.kind, a.Kind, a.Why)
		})
	}
}

// drawn is a history of a machine that does one transaction after the other, each at a moment
// between its sending and its answer.
func drawn(r *rapid.T) (txns []*Txn, final map[string][]int) {
	final = map[string][]int{}
	now, value := int64(0), 0
	for i := range rapid.IntRange(1, 40).Draw(r, "transactions") {
		now += 10
		t := &Txn{Client: i, Sent: now - rapid.Int64Range(0, 30).Draw(r, "sent"), Answered: now + rapid.Int64Range(0, 30).Draw(r, "answered")}
		t.Outcome = rapid.SampledFrom([]Outcome{OK, OK, OK, Unknown, Failed}).Draw(r, "outcome")
		happens := t.Outcome == OK || t.Outcome == Unknown && rapid.Bool().Draw(r, "happens")
		for range rapid.IntRange(1, 4).Draw(r, "steps") {
			key := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(r, "key")
			s := Step{Key: key}
			if rapid.Bool().Draw(r, "appends") {
				value++
				s.Append = value
				if happens {
					final[key] = append(final[key], value)
				}
			} else if t.Outcome == OK {
				s.Read = slices.Clone(final[key])
			}
			t.Steps = append(t.Steps, s)
		}
		txns = append(txns, t)
	}
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "order"), 0))
	rnd.Shuffle(len(txns), func(i, j int) { txns[i], txns[j] = txns[j], txns[i] })
	return txns, final
}

// What was done one after the other passes. If an answered read of it lacks its last element, which
// another had been told of before it was sent, it doesn't.
func TestDrawn(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		txns, final := drawn(r)
		if err := Check(txns, final); err != nil {
			r.Fatal(err)
		}
		told := map[element]int64{} // when its append was answered
		for _, one := range txns {
			for _, s := range one.Steps {
				if s.Append != 0 && one.Outcome == OK {
					told[element{s.Key, s.Append}] = one.Answered
				}
			}
		}
		for _, one := range txns {
			for i, s := range one.Steps {
				n := len(s.Read)
				if n == 0 || one.Outcome != OK {
					continue
				}
				at, ok := told[element{s.Key, s.Read[n-1]}]
				if !ok || at >= one.Sent {
					continue
				}
				one.Steps[i].Read = s.Read[:n-1]
				var a *Anomaly
				if err := Check(txns, final); !errors.As(err, &a) {
					r.Fatal(fmt.Sprintf("the stale read %v is not found: %v", one, err))
				}
				return
			}
		}
	})
}
