package session

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/placement"
)

// request is a request of the model's client.
type request struct {
	plan    Plan
	fast    bool
	refused bool  // for its form: it has its answer when it comes
	opens   bool  // a watch, which begins behind the revision of its reply
	wrote   int   // the session's writes that a read saw
	since   int64 // revision acknowledged when the request came
}

// model is a server with delayed partitions. A session's writes through one
// partition arrive in order.
type model struct {
	t *rapid.T
	s *Session

	rev      int64
	closed   []int64 // per partition
	inboxes  [][]sent
	applied  []uint64 // numbers of writes, in the order in which they took effect
	answered []*Op    // answered, and not yet known to the session
	what     []Outcome
	last     map[int]uint64 // per partition: the last number applied

	awaited   *await
	at        int64 // that the run of reads sees
	through   int64 // ordered events up to here have gone out
	replied   []uint64
	told      int64   // the highest revision of a reply, as the client counts it
	tokens    []int64 // of the requests, by number
	unflushed int
	moving    int // number of later writes whose keys have moved
	holds     bool
}

type sent struct {
	op    *Op
	parts placement.Set
	pred  uint64
}

type await struct {
	strict bool
	parts  placement.Set
	need   int64
}

func (m *model) Plan(op *Op) Plan { return op.Request.(*request).plan }

// Admit holds some writes back until something else has happened.
func (m *model) Admit(*Op) bool { return !m.holds || rapid.IntRange(0, 4).Draw(m.t, "admit") > 0 }

func (m *model) Write(op *Op, parts placement.Set, home int, pred uint64) {
	require.Nil(m.t, m.awaited, "write %d left while reads were under way", op.Seq)
	plan := op.Request.(*request).plan
	require.Zero(m.t, plan.Parts&^parts, "write %d does not reach its keys", op.Seq)
	require.True(m.t, parts.Has(home))
	if plan.Alone {
		require.Zero(m.t, m.underway(), "write %d is not alone", op.Seq)
	}
	m.inboxes[home] = append(m.inboxes[home], sent{op, parts, pred})
}

// behind reports whether none of the participants has seen a write's
// predecessor.
func (m *model) behind(in sent) bool {
	for p := range in.parts.Each() {
		if m.last[p] >= in.pred {
			return false
		}
	}
	return true
}

func (m *model) visible(parts placement.Set) int64 {
	rev := m.rev
	for p := range parts.Each() {
		rev = min(rev, m.closed[p])
	}
	return rev
}

func (m *model) Await(strict bool, parts placement.Set, need int64) bool {
	require.Zero(m.t, m.underway(), "reads left while writes were under way")
	if strict {
		need = max(need, m.rev)
	}
	if m.visible(parts) >= need && rapid.Bool().Draw(m.t, "at once") {
		return true
	}
	m.awaited = &await{strict, parts, need}
	return false
}

func (m *model) underway() int {
	n := 0
	for _, in := range m.inboxes {
		n += len(in)
	}
	return n + len(m.answered)
}

// Begin: all reads of a run see one state.
func (m *model) Begin(parts placement.Set) { m.at = m.visible(parts) }

func (m *model) Read(op *Op) bool {
	r := op.Request.(*request)
	if m.moving > 0 {
		m.moving--
		return false
	}
	op.Revision = m.at
	op.Reflects = true
	floor := m.told
	for _, token := range m.tokens[:min(int(op.Seq), len(m.tokens))] {
		floor = max(floor, token)
	}
	require.GreaterOrEqual(m.t, op.Revision, floor, "read %d shows less than its session was told", op.Seq)
	if r.plan.Strict {
		require.GreaterOrEqual(m.t, op.Revision, r.since, "strict read %d", op.Seq)
	}
	r.wrote = len(m.applied)
	return true
}

func (m *model) Act(op *Op) {
	require.Zero(m.t, m.underway())
	require.True(m.t, len(m.replied) == 0 || m.replied[len(m.replied)-1] == op.Seq-1)
	op.Revision = m.rev
}

func (m *model) Ready(op *Op) bool { return !op.Reflects || m.through >= op.Revision }

func (m *model) Reply(op *Op) {
	require.True(m.t, op.Done)
	require.False(m.t, m.Full())
	if op.Reflects {
		require.GreaterOrEqual(m.t, m.through, op.Revision, "reply %d left before its events", op.Seq)
	}
	if op.Request.(*request).opens {
		op.Revision = m.rev
	}
	if !op.Unseen {
		m.told = max(m.told, op.Revision)
	}
	m.replied = append(m.replied, op.Seq)
	m.unflushed++
}

func (m *model) Full() bool { return m.unflushed >= 5 }

// apply takes the next write of a partition.
func (m *model) apply(p int) {
	in := m.inboxes[p][0]
	m.inboxes[p] = m.inboxes[p][1:]
	what := Answered
	switch {
	case m.behind(in):
		what = Gap
	case m.moving > 0:
		m.moving--
		what = Moved
	default:
		m.rev++
		m.applied = append(m.applied, in.op.Seq)
		in.op.Revision = m.rev
		for q := range in.parts.Each() {
			m.closed[q], m.last[q] = m.rev, in.op.Seq
		}
	}
	m.answered, m.what = append(m.answered, in.op), append(m.what, what)
}

func (m *model) advance() {
	for m.s.Advance() {
		m.unflushed = 0
	}
	m.unflushed = 0
}

// step is one event.
func (m *model) step(kind int) {
	switch kind {
	case 0, 1: // a partition works
		if p := rapid.IntRange(0, len(m.inboxes)-1).Draw(m.t, "partition"); len(m.inboxes[p]) > 0 {
			m.apply(p)
		}
	case 2, 3: // an answer comes, in any order
		if len(m.answered) > 0 {
			i := rapid.IntRange(0, len(m.answered)-1).Draw(m.t, "answer")
			op, what := m.answered[i], m.what[i]
			m.answered, m.what = slices.Delete(m.answered, i, i+1), slices.Delete(m.what, i, i+1)
			m.s.Wrote(op, what)
			m.advance()
		}
	case 4: // other clients write
		m.rev++
		m.closed[rapid.IntRange(0, len(m.closed)-1).Draw(m.t, "partition")] = m.rev
	case 5: // partitions close, events leave
		if rapid.Bool().Draw(m.t, "one") {
			p := rapid.IntRange(0, len(m.closed)-1).Draw(m.t, "partition")
			m.closed[p] = rapid.Int64Range(m.closed[p], m.rev).Draw(m.t, "closed")
		} else {
			for p := range m.closed {
				m.closed[p] = m.rev
			}
			m.through = m.rev
		}
		m.advance()
	case 6:
		if a := m.awaited; a != nil && m.visible(a.parts) >= a.need {
			m.awaited = nil
			m.s.Reached(nil)
			m.advance()
		}
	}
}

func (m *model) quiesce() {
	for range 10_000 {
		if n, _ := m.s.Waiting(); n == 0 || m.s.Ended() {
			return
		}
		for kind := range 7 {
			if kind == 0 {
				for p := range m.inboxes {
					for len(m.inboxes[p]) > 0 {
						m.apply(p)
					}
				}
			}
			m.step(kind)
		}
	}
	m.t.Fatalf("the session hangs")
}

func drawRequest(t *rapid.T, partitions int) *request {
	some := func() placement.Set {
		return placement.Of(rapid.IntRange(0, partitions-1).Draw(t, "partition"))
	}
	two := func() placement.Set {
		one := some()
		return one | some()
	}
	switch rapid.IntRange(0, 12).Draw(t, "class") {
	case 0, 1, 2, 3:
		return &request{plan: Plan{Class: Write, Parts: some()}}
	case 4:
		return &request{plan: Plan{Class: Write, Parts: two(), Alone: rapid.Bool().Draw(t, "alone")}}
	case 5, 6, 7:
		return &request{plan: Plan{Class: Read, Parts: two(), Strict: rapid.Bool().Draw(t, "strict")}}
	case 8:
		return &request{fast: true}
	case 9:
		return &request{refused: true}
	case 10:
		return &request{plan: Plan{Class: Act}, opens: true}
	case 11: // by an extension
		return &request{plan: Plan{Class: Write, Parts: some()}, opens: true}
	default:
		return &request{plan: Plan{Class: Act}}
	}
}

func newOp(m *model, r *request) *Op {
	done := r.fast || r.refused
	return &Op{Seq: m.s.Next(), Request: r, Done: done, Unseen: r.fast, Opens: r.opens, Bytes: 1}
}

func TestOrderIsKeptWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 3).Draw(t, "partitions")
		m := &model{t: t, rev: 1, closed: make([]int64, partitions), inboxes: make([][]sent, partitions), last: map[int]uint64{}, holds: true}
		m.s = New(m, 1, 0)
		var ops []*Op
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if kind := rapid.IntRange(0, 11).Draw(t, "kind"); kind < 7 {
				m.step(kind)
				continue
			}
			for range rapid.IntRange(1, 4).Draw(t, "batch") {
				r := drawRequest(t, partitions)
				op := newOp(m, r)
				if !r.fast {
					op.Token = rapid.Int64Range(0, m.rev).Draw(t, "token")
				}
				m.tokens = append(m.tokens, op.Token)
				r.since = m.rev
				ops = append(ops, op)
				m.s.Take(op)
			}
			m.moving = rapid.IntRange(0, 6).Draw(t, "moving") / 5
			m.advance()
		}
		m.quiesce()
		require.False(t, m.s.Ended())
		checkAll(t, m, ops)
	})
}

func checkAll(t *rapid.T, m *model, ops []*Op) {
	require.True(t, slices.IsSorted(m.applied), "writes took effect as %v", m.applied)
	writes := 0
	var first int64 // of the events of the last watch that was opened
	for i, op := range ops {
		require.Equal(t, op.Seq, m.replied[i], "replies in order, each once: %v", m.replied)
		r := op.Request.(*request)
		if r.opens {
			first = op.Revision + 1
		} else if !r.fast && !r.refused && r.plan.Class != Act {
			require.GreaterOrEqual(t, op.Revision+1, first, "request %d shows less than the watch begins behind", op.Seq)
		}
		switch {
		case r.fast || r.refused || r.plan.Class == Act:
		case r.plan.Class == Read:
			require.Equal(t, writes, r.wrote, "read %d sees the writes before it and none behind it", op.Seq)
		default:
			require.Equal(t, op.Seq, m.applied[writes], "each write took effect once")
			require.True(t, r.opens || op.Revision >= first, "watch begins at %d, which lacks write %d at %d", first, op.Seq, op.Revision)
			writes++
		}
	}
	require.Len(t, m.applied, writes)
	require.Len(t, m.replied, len(ops))
	n, bytes := m.s.Waiting()
	require.Zero(t, n+bytes)
}

func TestWhatSurvivesALossIsAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, rev: 1, closed: make([]int64, 2), inboxes: make([][]sent, 2), last: map[int]uint64{}}
		m.s = New(m, 1, 0)
		var writes []uint64
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			r := drawRequest(t, 2)
			op := newOp(m, r)
			m.tokens = append(m.tokens, 0)
			if !op.Done && r.plan.Class == Write {
				writes = append(writes, op.Seq)
			}
			m.s.Take(op)
		}
		m.advance()
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			m.step(rapid.IntRange(0, 6).Draw(t, "kind"))
		}
		// A leader fails: a write in flight is lost, and none after it in its
		// partition passes.
		for p := range m.inboxes {
			if len(m.inboxes[p]) > 0 && !m.s.Ended() {
				lost := m.inboxes[p][0].op
				m.inboxes[p] = m.inboxes[p][1:]
				m.s.Wrote(lost, Unknown)
			}
		}
		ended, replied := m.s.Ended(), len(m.replied)
		m.quiesce()
		if ended {
			require.Len(t, m.replied, replied, "nothing is replied to after the loss")
		}
		require.True(t, slices.Equal(writes[:len(m.applied)], m.applied), "what took effect is a prefix: %v of %v", m.applied, writes)
	})
}

func TestReadsThatNeverArriveAreAnsweredWithWhy(t *testing.T) {
	why := errors.New("no leader")
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, rev: 5, closed: make([]int64, 1), inboxes: make([][]sent, 1), last: map[int]uint64{}, through: 9}
		m.s = New(m, 7, 9)
		a := &Op{Seq: 7, Request: &request{plan: Plan{Class: Read, Parts: placement.Of(0)}}}
		b := &Op{Seq: 8, Request: &request{plan: Plan{Class: Write, Parts: placement.Of(0)}}}
		m.s.Take(a)
		m.s.Take(b)
		m.advance()
		require.Empty(t, m.inboxes[0], "the write waits for the read")
		m.awaited = nil
		m.s.Reached(why)
		m.advance()
		require.ErrorIs(t, a.Err, why)
		require.Equal(t, []uint64{7}, m.replied)
		require.Len(t, m.inboxes[0], 1)
	})
}

func TestAWriteWithoutItsPredecessorIsALoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, rev: 5, closed: make([]int64, 1), inboxes: make([][]sent, 1), last: map[int]uint64{}}
		m.s = New(m, 1, 0)
		for seq := range uint64(2) {
			m.s.Take(&Op{Seq: seq + 1, Request: &request{plan: Plan{Class: Write, Parts: placement.Of(0)}}})
		}
		m.advance()
		require.EqualValues(t, 1, m.inboxes[0][1].pred)
		what := []Outcome{Answered, Gap}
		for i, in := range m.inboxes[0] {
			m.s.Wrote(in.op, what[i])
		}
		require.True(t, m.s.Ended())
		require.False(t, m.s.Advance())
		require.Empty(t, m.replied)
	})
}

// A read point may be older than a read that comes while it is awaited.
func TestARunTakesNobodyInOnItsWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, rev: 1, closed: make([]int64, 1), inboxes: make([][]sent, 1), last: map[int]uint64{}, through: 9}
		m.s = New(m, 1, 0)
		read := func() *Op {
			op := &Op{Seq: m.s.Next(), Request: &request{plan: Plan{Class: Read, Parts: placement.Of(0), Strict: true}, since: m.rev}}
			m.s.Take(op)
			m.advance()
			return op
		}
		first := read()
		require.NotNil(t, m.awaited)
		m.rev = 2
		second := read()
		m.closed[0], m.awaited = 1, nil
		m.s.Reached(nil)
		m.advance()
		require.True(t, first.Done)
		require.False(t, second.Done)
		require.EqualValues(t, 2, m.awaited.need)
	})
}
