package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Two sessions send writes over a network that loses, repeats and delays copies of
// them as it likes; connections break and everything unanswered is sent again; keys
// move; servers start again from what they have stored; leases end. Whatever happens,
// a write takes effect once and after all of its session's writes before it, its
// answer is the naive model's, and is the same however often it is asked for.
func TestSessionsAgreeWithTheModel(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), rapid.MakeCheck(func(t *rapid.T) {
			n := newSessionNet(partitions)
			n.leader.held = rapid.Bool().Draw(t, "in pieces")
			n.follower.held = n.leader.held
			for range rapid.IntRange(1, 80).Draw(t, "steps") {
				n.step(t)
			}
			for _, c := range n.clients {
				n.finish(t, c)
			}
			n.check(t)
		}))
	}
}

// sessionNet is the servers, the clients and what is under way between them.
type sessionNet struct {
	*history
	clients []*sessionClient
	letters []letter
	stored  [2]map[string][]byte
	moved   bool // keys have
}

// sessionClient is a session, its client and the server at the other end of its
// connection taken together: they send one write after the other, and don't wait for
// answers as long as the writes go to the same partition.
type sessionClient struct {
	id         int64
	alive      bool
	connection int
	next       uint64
	writes     map[uint64]proto.Message // all that it has ever asked for
	answers    map[uint64]bool          // those of which it has the answer
	again      []uint64                 // to be sent again before anything else
	under      []uint64                 // sent over this connection, in order
	parts      placement.Set            // of those
	done       map[uint64]modelAnswer   // what has taken effect, and its answer
	told       uint64                   // answers that the servers know it to have
}

type modelAnswer struct {
	resp proto.Message
	err  error
}

// letter is a copy of a write under way.
type letter struct {
	to         *sessionClient
	connection int
	q          command.Sequenced
	parts      placement.Set
}

func newSessionNet(partitions int) *sessionNet {
	n := &sessionNet{history: &history{
		model: newModel(), leader: newRig(partitions), follower: newRig(partitions), stamped: partitions > 1, next: 2,
	}}
	n.leader.quiet, n.follower.quiet = true, true
	for i := range n.stored {
		n.stored[i] = map[string][]byte{}
	}
	for id := range int64(2) {
		n.clients = append(n.clients, newSessionClient(id+1))
		n.system(opening{&pb.LeaseGrantRequest{ID: id + 1, TTL: 60}})
	}
	return n
}

func newSessionClient(id int64) *sessionClient {
	return &sessionClient{
		id: id, alive: true, next: 1,
		writes: map[uint64]proto.Message{}, answers: map[uint64]bool{}, done: map[uint64]modelAnswer{},
	}
}

func (n *sessionNet) step(t *rapid.T) {
	c := rapid.SampledFrom(n.clients).Draw(t, "client")
	switch k := rapid.IntRange(0, 19).Draw(t, "step"); {
	case k < 8:
		n.send(t, c)
	case k < 15:
		n.deliver(t)
	case k == 15:
		n.letters = slices.DeleteFunc(n.letters, func(letter) bool { return rapid.Bool().Draw(t, "lost") })
	case k == 16:
		c.reconnect()
	case k == 17 && n.stamped:
		n.move(t)
	case k == 18 && n.stamped && rapid.Bool().Draw(t, "keys move on"):
		keys := rapid.IntRange(1, 3).Draw(t, "keys")
		for _, r := range []*rig{n.leader, n.follower} {
			r.step(n.next, keys, nil)
		}
		n.next++
	case k == 18:
		n.restart(t)
	case k == 19 && rapid.IntRange(0, 3).Draw(t, "really") == 0:
		n.end(c)
	}
	for p := range n.leader.Stores {
		require.Equal(t, n.leader.SessionsDigest(p), n.follower.SessionsDigest(p), "partition %d", p)
	}
}

// send gives the client's next write to the network, if it may be sent now.
func (n *sessionNet) send(t *rapid.T, c *sessionClient) {
	seq := c.next + rapid.Uint64Range(0, 1).Draw(t, "reads between")
	if len(c.again) > 0 {
		seq = c.again[0]
	} else {
		c.writes[seq] = sessionWrite(n.history).Draw(t, "write")
		c.next = seq + 1
	}
	parts := n.leader.parts(c.writes[seq], true)
	if len(c.waiting()) > 0 && (parts != c.parts || parts.Len() > 1) {
		if len(c.again) == 0 {
			c.again = []uint64{seq}
		}
		return
	}
	if len(c.again) > 0 {
		c.again = c.again[1:]
	}
	wrapped := cmd(c.writes[seq])
	q := command.Sequenced{Session: c.id, Seq: seq, Kind: wrapped.Kind, Body: wrapped.Body}
	if len(c.waiting()) > 0 {
		q.Pred = c.under[len(c.under)-1]
	}
	q.Answered = rapid.Uint64Range(0, c.answered(seq)).Draw(t, "answered")
	c.under, c.parts = append(c.under, seq), parts
	n.letters = append(n.letters, letter{c, c.connection, q, parts})
}

// waiting are the writes under way without an answer.
func (c *sessionClient) waiting() []uint64 {
	return slices.DeleteFunc(slices.Clone(c.under), func(seq uint64) bool { return c.answers[seq] })
}

// answered is the highest number up to which the client has all answers, when it
// sends seq.
func (c *sessionClient) answered(seq uint64) uint64 {
	for _, s := range slices.Sorted(maps.Keys(c.writes)) {
		if !c.answers[s] {
			return min(s, seq) - 1
		}
	}
	return seq - 1
}

// reconnect breaks the connection: answers to what was sent over it are lost.
func (c *sessionClient) reconnect() {
	c.connection++
	c.again = nil
	for _, seq := range slices.Sorted(maps.Keys(c.writes)) {
		if !c.answers[seq] {
			c.again = append(c.again, seq)
		}
	}
	c.under = nil
}

// deliver lets some copies arrive, in one entry.
func (n *sessionNet) deliver(t *rapid.T) {
	var batch []letter
	for range rapid.IntRange(1, 4).Draw(t, "copies") {
		if len(n.letters) == 0 {
			break
		}
		i := rapid.IntRange(0, len(n.letters)-1).Draw(t, "which")
		l := n.letters[i]
		if len(batch) > 0 && (l.parts != batch[0].parts || l.parts.Len() > 1) {
			break
		}
		batch = append(batch, l)
		if rapid.IntRange(0, 3).Draw(t, "another comes later") > 0 {
			n.letters = slices.Delete(n.letters, i, i+1)
		}
	}
	if len(batch) > 0 {
		n.arrive(t, batch)
	}
}

// finish lets a client have its way at last: whatever has happened, nothing is in the
// way of a write that is sent in its turn.
func (n *sessionNet) finish(t *rapid.T, c *sessionClient) {
	c.reconnect()
	for c.alive && len(c.again) > 0 {
		n.send(t, c)
		l := n.letters[len(n.letters)-1]
		n.arrive(t, []letter{l})
		_, done := c.done[l.q.Seq]
		require.True(t, done, "session %d: %d, sent in its turn, has not taken effect", c.id, l.q.Seq)
		c.answers[l.q.Seq] = true
	}
}

// arrive applies copies in one entry.
func (n *sessionNet) arrive(t *rapid.T, batch []letter) {
	e := command.Entry{}
	for _, l := range batch {
		e.Commands = append(e.Commands, command.Command{Kind: command.InSession, Body: l.q.AppendTo(nil)})
	}
	results := n.log(&e, batch[0].parts)
	for i, l := range batch {
		n.judge(t, e.StampOf(i), &l, results[i])
		if l.connection != l.to.connection || rapid.IntRange(0, 9).Draw(t, "answer lost") == 0 {
			continue
		}
		if errors.Is(results[i].Err, fault.Moved) || errors.Is(results[i].Err, fault.SessionGap) || errors.Is(results[i].Err, fault.SessionGone) {
			l.to.reconnect()
		} else {
			l.to.answers[l.q.Seq] = true
		}
	}
}

// log applies an entry on both servers.
func (n *sessionNet) log(e *command.Entry, parts placement.Set) []Result {
	if n.stamped {
		e.Stamp = n.next
	}
	n.next += int64(e.Stamps())
	copied, err := command.Decode(e.AppendTo(nil))
	if err != nil {
		panic(err)
	}
	results := make([]Result, len(e.Commands))
	n.leader.entry(e, parts, func(i int, r Result) { results[i] = r })
	n.follower.entry(&copied, parts, nil)
	return results
}

// judge compares what became of a copy with what should have.
func (n *sessionNet) judge(t *rapid.T, stamp int64, l *letter, r Result) {
	c, q := l.to, &l.q
	what := fmt.Sprintf("session %d: %d after %d", q.Session, q.Seq, q.Pred)
	before, done := c.done[q.Seq]
	switch {
	case !c.alive:
		require.ErrorIs(t, r.Err, fault.SessionGone, what)
	case errors.Is(r.Err, fault.Moved):
		require.NotEqual(t, l.parts, n.leader.parts(c.writes[q.Seq], true), what)
	case done && errors.Is(r.Err, fault.ResultForgotten):
		require.LessOrEqual(t, q.Seq, c.told, "%s: its answer was never received", what)
	case done:
		n.agree(t, before, r, what+" again")
	case errors.Is(r.Err, fault.SessionGap):
		// Where keys move, the predecessor may have taken effect elsewhere: this is
		// then the copy of a connection that has ended, or is about to.
		_, pred := c.done[q.Pred]
		require.False(t, q.Pred == 0 || pred && !n.moved, "%s: there is no gap", what)
	default:
		for seq := range c.writes {
			_, has := c.done[seq]
			require.True(t, has || seq >= q.Seq, "%s: but %d hasn't taken effect", what, seq)
		}
		resp, err := n.run(stamp, c.writes[q.Seq])
		c.done[q.Seq] = modelAnswer{resp, err}
		c.told = max(c.told, q.Answered)
		n.agree(t, c.done[q.Seq], r, what)
	}
}

func (n *sessionNet) agree(t *rapid.T, want modelAnswer, got Result, what string) {
	require.Equal(t, want.err, faultOf(got.Err), what)
	if want.err == nil {
		same(t, want.resp, got.Response, "%s", what)
	}
}

func (n *sessionNet) move(t *rapid.T) {
	to := rapid.IntRange(0, len(n.leader.Stores)-1).Draw(t, "to")
	rules := []placement.Rule{{Key: key().Draw(t, "key"), Slot: slotIn(n.leader.Placement(), to)}}
	for _, r := range []*rig{n.leader, n.follower} {
		r.place(n.next, nil, false, rules, nil)
	}
	n.next++
	n.moved = true
}

// restart makes a cut and starts the servers' tables anew from all cuts.
func (n *sessionNet) restart(t *rapid.T) {
	for i, r := range []*rig{n.leader, n.follower} {
		cut := r.CutSessions()
		for name, value := range cut.AddTo(nil) {
			if n.stored[i][name] = value; value == nil {
				delete(n.stored[i], name)
			}
		}
		before := r.storyRemembered()
		require.NoError(t, r.LoadSessions(n.stored[i]))
		require.Equal(t, before, r.storyRemembered())
	}
	require.Equal(t, n.stored[0], n.stored[1])
}

// end revokes a session's lease, or grants one to another session with the same id.
func (n *sessionNet) end(c *sessionClient) {
	if c.alive {
		n.system(&pb.LeaseRevokeRequest{ID: c.id})
		c.alive = false
		return
	}
	n.system(opening{&pb.LeaseGrantRequest{ID: c.id, TTL: 60}})
	n.letters = slices.DeleteFunc(n.letters, func(l letter) bool { return l.to == c })
	*c = *newSessionClient(c.id)
}

func (n *sessionNet) system(req proto.Message) {
	e := command.Entry{Commands: []command.Command{cmd(req)}}
	all := n.leader.Placement().All()
	n.log(&e, all)
	if _, err := n.run(e.StampOf(0), req); err != nil {
		panic(err)
	}
}

// check compares the remaining state.
func (n *sessionNet) check(t *rapid.T) {
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	at := int64(0)
	now := n.last().rev
	if n.stamped {
		at, now = n.next-1, n.next-1
	}
	want, err := n.model.read(now, all)
	require.NoError(t, err)
	for _, r := range []*rig{n.leader, n.follower} {
		got, err := r.Range(all, r.Placement().All(), at, 0)
		require.NoError(t, err)
		same(t, want, got.Message(), "all keys at %d", now)
	}
	require.Len(t, n.leader.events, len(n.follower.events))
}

func sessionWrite(h *history) *rapid.Generator[proto.Message] {
	return rapid.Custom(func(t *rapid.T) proto.Message {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return deleteRequest().Draw(t, "delete")
		case 1:
			return txnRequest(h, 1).Draw(t, "txn")
		}
		return putRequest().Draw(t, "put")
	})
}
