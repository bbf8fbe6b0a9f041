package commands

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/client/mirror"
)

// modelQueue is the cluster of a queue, with the keys of the queue alone.
type modelQueue struct {
	rev     int64
	entries []Entry                 // present, in order
	all     []Entry                 // that were ever put
	clients map[string]*modelClient // whose lease is alive
	done    Done
	doneAt  int64
}

type modelClient struct{ version, revision int64 }

// send is the transaction of a batch.
func (q *modelQueue) send(t *rapid.T, client string, number int64, value []byte) Answer {
	c := q.clients[client]
	switch {
	case c == nil:
		return Answer{}
	case c.version != number:
		return Answer{Revision: c.revision, Version: c.version}
	}
	batch, err := Decode(value, clusters)
	if err != nil {
		t.Fatal(err)
	}
	q.rev++
	*c = modelClient{number + 1, q.rev}
	e := Entry{q.rev, client, number, batch}
	q.entries, q.all = append(q.entries, e), append(q.all, e)
	return Answer{Taken: true, Revision: q.rev}
}

// read returns entries behind a revision.
func (q *modelQueue) read(after int64, most int) (all []Entry) {
	for _, e := range q.entries {
		if e.Revision > after && len(all) < most {
			all = append(all, e)
		}
	}
	return all
}

// finish is a finisher's transaction. It fails the test if entries are removed or said to be done
// that a cluster hasn't had.
func (q *modelQueue) finish(t *rapid.T, f Finish, targets []*modelTarget) bool {
	if f.If != q.doneAt {
		return false
	}
	q.rev++
	q.entries = slices.DeleteFunc(q.entries, func(e Entry) bool {
		gone := e.Number <= f.Remove[e.Client]
		for _, target := range targets {
			if gone && target.lacks(e) {
				t.Fatalf("entry %d is removed, and cluster %d has not had it: %+v", e.Revision, target.cluster, target.mark())
			}
		}
		return gone
	})
	if f.Done == nil {
		return true
	}
	d, err := ParseDone(f.Done)
	if err != nil || d.Entry <= q.done.Entry {
		t.Fatalf("what is done goes back from %+v to %+v, or %v", q.done, d, err)
	}
	for _, e := range q.all {
		for i, target := range targets {
			if e.Revision <= d.Entry && (target.lacks(e) || d.Revisions[i] < target.hadAt(e)) {
				t.Fatalf("entry %d is said to be done at %+v, and cluster %d has had it at %d", e.Revision, d, i, target.hadAt(e))
			}
		}
	}
	q.done, q.doneAt = d, q.rev
	return true
}

// modelTarget is a cluster that has commands.
type modelTarget struct {
	cluster int
	rev     int64
	state   map[string]string
	value   []byte // of the mark
	at      int64
	had     map[place]int64 // commands, and the revisions at which they had effect
	ops     int             // most of a transaction
}

type place struct {
	entry   int64
	command int
}

func newModelTarget(cluster int) *modelTarget {
	return &modelTarget{cluster: cluster, rev: 1, state: map[string]string{}, had: map[place]int64{}}
}

func (m *modelTarget) mark() Mark {
	mark, err := ParseMark(m.value)
	if err != nil {
		panic(err)
	}
	return mark
}

func (m *modelTarget) concerned(cmd Command) bool {
	return slices.ContainsFunc(cmd, func(op Op) bool { return op.Cluster == m.cluster })
}

func (m *modelTarget) lacks(e Entry) bool {
	for i, cmd := range e.Commands {
		if m.concerned(cmd) && m.had[place{e.Revision, i}] == 0 {
			return true
		}
	}
	return false
}

func (m *modelTarget) hadAt(e Entry) (at int64) {
	for i := range e.Commands {
		at = max(at, m.had[place{e.Revision, i}])
	}
	return at
}

// commit is a carrier's transaction. It fails the test unless it is exactly the commands between
// the mark before and the new one.
func (m *modelTarget) commit(t *rapid.T, txn mirror.Txn, q *modelQueue) mirror.Result {
	if txn.If != m.at || string(txn.Was) != string(m.value) {
		return mirror.Result{Revision: m.rev, Refused: true, Mark: m.value, ModRevision: m.at}
	}
	before := m.mark()
	m.rev++
	m.value, m.at, m.ops = txn.Mark, m.rev, max(m.ops, len(txn.Ops))
	now, want := m.mark(), map[string]string{}
	for _, e := range q.all {
		for i, cmd := range e.Commands {
			p := place{e.Revision, i}
			if !m.concerned(cmd) || before.behind(e.Revision, i+1) || !now.behind(e.Revision, i+1) {
				continue
			}
			if m.had[p] != 0 {
				t.Fatalf("cluster %d has command %+v twice", m.cluster, p)
			}
			m.had[p] = m.rev
			for _, op := range cmd {
				if op.Cluster == m.cluster {
					want[string(op.Key)] = changed(op.Op)
				}
			}
		}
	}
	got := map[string]string{}
	for _, op := range txn.Ops {
		if _, twice := got[string(op.Key)]; twice {
			t.Fatalf("%q is changed twice", op.Key)
		}
		got[string(op.Key)] = changed(op)
	}
	if !maps.Equal(want, got) {
		t.Fatalf("cluster %d from %+v to %+v: %v, and not %v", m.cluster, before.Place, now.Place, got, want)
	}
	m.change(txn.Ops)
	return mirror.Result{Revision: m.rev}
}

func (m *modelTarget) change(ops []mirror.Op) {
	for _, op := range ops {
		if op.Delete {
			delete(m.state, string(op.Key))
		} else {
			m.state[string(op.Key)] = string(op.Value)
		}
	}
}

func changed(op mirror.Op) string {
	if op.Delete {
		return "deleted"
	}
	return fmt.Sprintf("put %q", op.Value)
}
