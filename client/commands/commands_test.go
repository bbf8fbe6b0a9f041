package commands

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/client/mirror"
)

const clusters = 3

var tiny = mirror.Limits{Ops: 4, Bytes: 400}

// trial is one random history of a queue: clients that send, two executors at once that crash at
// any step, requests that are lost, answered late or never.
type trial struct {
	t         *rapid.T
	queue     *modelQueue
	targets   []*modelTarget
	clients   map[string]*client
	executors []*executor
	born      int
	late      []func() // requests on their way, whose senders don't wait for them
	told      map[string]int64
	sent      int
}

type client struct {
	name   string
	sender *Sender
	names  []string // of the commands that wait, by a key of each
	tried  bool     // the batch on its way was sent before
}

type executor struct {
	name     string
	carriers []*Carrier // nil: not open
	finisher *Finisher
	read     []int64 // the last entry that each carrier was given
}

func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &trial{
			t: t, queue: &modelQueue{rev: 1, clients: map[string]*modelClient{}}, clients: map[string]*client{}, told: map[string]int64{},
			executors: make([]*executor, 2),
		}
		for i := range clusters {
			h.targets = append(h.targets, newModelTarget(i))
		}
		steps := map[string]func(*rapid.T){
			"command": func(*rapid.T) { h.command() }, "batch": func(*rapid.T) { h.batch(drawFate(t)) }, "expire": func(*rapid.T) { h.expire() },
			"carry": func(*rapid.T) { h.carry(drawFate(t)) }, "carry on": func(*rapid.T) { h.carry("done") },
			"finish": func(*rapid.T) { h.finish(drawFate(t)) }, "crash": func(*rapid.T) { h.crash() }, "late": func(*rapid.T) { h.arrive() },
		}
		t.Repeat(steps)
		h.end()
	})
}

// drawFate says what happens to a request. It may have an effect and an answer, or lose the one
// or the other, or have its effect late, when its sender has long given up.
func drawFate(t *rapid.T) string {
	return rapid.SampledFrom([]string{"done", "done", "done", "answer lost", "lost", "late"}).Draw(t, "fate")
}

// meet executes a request, and reports whether there is an answer.
func (h *trial) meet(fate string, do func()) bool {
	switch fate {
	case "done":
		do()
		return true
	case "answer lost":
		do()
	case "late":
		h.late = append(h.late, do)
	}
	return false
}

func (h *trial) arrive() {
	if len(h.late) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.late)-1).Draw(h.t, "which")
	do := h.late[i]
	h.late = slices.Delete(h.late, i, i+1)
	do()
}

func (h *trial) someClient() *client {
	name := fmt.Sprint("client", rapid.IntRange(0, 2).Draw(h.t, "client"))
	c := h.clients[name]
	if c == nil {
		h.born++
		c = &client{name: fmt.Sprint(name, "-", h.born), sender: NewSender(60)}
		h.clients[name] = c
		h.queue.rev++
		h.queue.clients[c.name] = &modelClient{1, h.queue.rev}
	}
	return c
}

func (h *trial) command() {
	c := h.someClient()
	h.sent++
	own := fmt.Sprint("own", h.sent)
	var cmd Command
	for cluster := range clusters {
		for range rapid.IntRange(0, 2).Draw(h.t, "changes") {
			key := rapid.SampledFrom([]string{"a", "b", "c", own}).Draw(h.t, "key")
			op := mirror.Op{Key: []byte(key), Delete: rapid.IntRange(0, 3).Draw(h.t, "kind") == 0}
			if !op.Delete {
				op.Value = []byte(own)
			}
			cmd = append(cmd, Op{cluster, op})
		}
	}
	require.NoError(h.t, cmd.Check(tiny))
	c.sender.Add(cmd)
	c.names = append(c.names, own)
}

func (h *trial) batch(fate string) {
	c := h.someClient()
	number, value, ok := c.sender.Batch()
	if !ok {
		return
	}
	var a Answer
	if !h.meet(fate, func() { a = h.queue.send(h.t, c.name, number, value) }) {
		c.tried = true
		return
	}
	n, entry, err := c.sender.Answered(a)
	if errors.Is(err, ErrExpired) {
		for name, other := range h.clients {
			if other == c {
				delete(h.clients, name)
			}
		}
		return
	}
	require.NoError(h.t, err)
	for _, name := range c.names[:n] {
		h.told[name] = entry
	}
	c.names, c.tried = c.names[n:], false
	require.True(h.t, slices.ContainsFunc(h.queue.all, func(e Entry) bool {
		return e.Revision == entry && e.Client == c.name && e.Number == number && len(e.Commands) == n
	}), "what %s was told of batch %d isn't so", c.name, number)
}

// expire ends the lease of a client.
func (h *trial) expire() {
	if rapid.IntRange(0, 5).Draw(h.t, "really") == 0 {
		delete(h.queue.clients, h.someClient().name)
	}
}

func (h *trial) someExecutor() *executor {
	i := rapid.IntRange(0, len(h.executors)-1).Draw(h.t, "executor")
	if h.executors[i] == nil {
		h.executors[i] = h.open()
	}
	return h.executors[i]
}

func (h *trial) open() *executor {
	h.born++
	x := &executor{name: fmt.Sprint("executor", h.born)}
	x.finisher = NewFinisher(h.queue.done, h.queue.doneAt, 1)
	for i, target := range h.targets {
		c, err := NewCarrier(CarrierConfig{
			Cluster: i, Limits: tiny, Owner: x.name, Queue: 7, Revision: h.queue.rev, Done: h.queue.done.Entry, Mark: target.value, At: target.at,
		})
		require.NoError(h.t, err)
		x.carriers = append(x.carriers, c)
		x.read = append(x.read, h.queue.done.Entry)
	}
	return x
}

func (h *trial) crash() {
	if rapid.IntRange(0, 3).Draw(h.t, "really") == 0 {
		h.kill(h.someExecutor())
	}
}

func (h *trial) kill(x *executor) { h.executors[slices.Index(h.executors, x)] = nil }

// carry is a step of one carrier: it reads, or writes.
func (h *trial) carry(fate string) {
	x := h.someExecutor()
	i := rapid.IntRange(0, clusters-1).Draw(h.t, "cluster")
	if rapid.Bool().Draw(h.t, "read") {
		h.read(x, i, 2)
		return
	}
	h.write(x, i, fate)
}

func (h *trial) read(x *executor, i, most int) {
	more := h.queue.read(x.read[i], most)
	x.carriers[i].Add(more...)
	if n := len(more); n > 0 {
		x.read[i] = more[n-1].Revision
	}
}

func (h *trial) write(x *executor, i int, fate string) {
	txn, ok := x.carriers[i].Next()
	if !ok {
		return
	}
	target := h.targets[i]
	var r mirror.Result
	if !h.meet(fate, func() { r = target.commit(h.t, txn, h.queue) }) {
		return
	}
	if r.Refused && string(r.Mark) != string(txn.Mark) {
		h.kill(x)
		return
	}
	if r.Refused {
		r.Revision = r.ModRevision
	}
	x.carriers[i].Wrote(r.Revision)
}

func (h *trial) finish(fate string) {
	x := h.someExecutor()
	f, ok := x.finisher.Next(x.carriers)
	if !ok {
		return
	}
	wrote := false
	if !h.meet(fate, func() { wrote = h.queue.finish(h.t, f, h.targets) }) {
		return
	}
	if wrote {
		x.finisher.Wrote(h.queue.rev, x.carriers)
	} else {
		x.finisher.Found(h.queue.done, h.queue.doneAt)
	}
}

// end lets one executor do all that is left, and compares: every cluster is what the commands of
// the queue make of it, one after the other, and what clients were told is done.
func (h *trial) end() {
	for len(h.late) > 0 {
		h.arrive()
	}
	x := h.open()
	h.executors = []*executor{x}
	for i, c := range x.carriers {
		h.read(x, i, 1<<30)
		for _, more := c.Next(); more; _, more = c.Next() {
			h.write(x, i, "done")
		}
	}
	for _, more := x.finisher.Next(x.carriers); more; _, more = x.finisher.Next(x.carriers) {
		h.finish("done")
	}
	require.Empty(h.t, h.queue.entries)
	for name, entry := range h.told {
		require.LessOrEqual(h.t, entry, h.queue.done.Entry, "%s", name)
	}
	for i, target := range h.targets {
		want := newModelTarget(i)
		for _, e := range h.queue.all {
			for _, cmd := range e.Commands {
				for _, op := range cmd {
					if op.Cluster == i {
						want.change([]mirror.Op{op.Op})
					}
				}
			}
		}
		require.Equal(h.t, want.state, target.state, "cluster %d", i)
		require.LessOrEqual(h.t, target.ops, tiny.Ops)
	}
}
