package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// checkExtensions gives porcupine the calls of the counter and of the queue, which
// it knows from their answers alone: that of the n-th increment is n, and what is
// taken from the queue is what was put there first. Of calls that were not answered
// those take part that are in the history.
func (c *cluster) checkExtensions(*past) {
	var counts, queue []porcupine.Operation
	for _, o := range c.ordered() {
		if o.who == "" || o.effect == 0 && o.state != ok {
			continue
		}
		switch key := keyOf(o); {
		case !c.wasHandled(o):
		case key == "/x/inc":
			counts = append(counts, c.operation(o, answerOf(o)))
		case key == "/x/push", key == "/x/pop":
			queue = append(queue, c.operation(o, queued{o, answerOf(o)}))
		}
	}
	c.stats.Increments += len(counts)
	c.stats.Queued += len(queue)
	c.porcupine("the counter", counter, counts)
	c.porcupine("the queue", fifo, queue)
}

// plain says that a read was answered from the keys, and rightly, although an
// extension handled it at the revision of the answer: it didn't any more before the
// answer came, and the server knew.
func (p *past) plain(o *op) bool {
	r, read := o.req.(*pb.RangeRequest)
	if !read || o.who == "" || o.state != ok {
		return false
	}
	if i := p.index(o.rev); i > 0 && p.revisions[i-1].rev == o.rev && increments(p.revisions[i-1]) {
		return false // most likely its own
	}
	return p.ordinary(o, string(r.Key), o.rev)
}

func increments(r *revision) bool {
	for _, ch := range r.changes {
		if string(ch.Kv.Key()) == "/x/ctr" {
			return true
		}
	}
	return false
}

func keyOf(o *op) string {
	switch r := o.req.(type) {
	case *pb.PutRequest:
		return string(r.Key)
	case *pb.RangeRequest:
		return string(r.Key)
	case *pb.WatchCreateRequest:
		return string(r.Key)
	}
	return ""
}

// wasHandled says whether an extension has answered a request, or would have: it
// writes other keys than an ordinary one does. Only the taking of something from an
// empty queue writes nothing.
func (c *cluster) wasHandled(o *op) bool {
	if o.effect == 0 {
		return keyOf(o) == "/x/pop"
	}
	for _, ch := range c.ledger.revisions[o.effect].changes {
		if k := string(ch.Kv.Key()); k == "/x/ctr" || strings.HasPrefix(k, "/x/q/") {
			return true
		}
	}
	// Of a pop that has found nothing, an acknowledgement can be used up.
	return keyOf(o) == "/x/pop" && string(c.ledger.revisions[o.effect].changes[0].Kv.Key()) != "/x/pop"
}

// answerOf is the value that a call was answered with, "" for none.
func answerOf(o *op) string {
	switch r := o.resp.(type) {
	case *pb.PutResponse:
		return string(r.GetPrevKv().GetValue())
	case *pb.RangeResponse:
		if len(r.Kvs) > 0 {
			return string(r.Kvs[0].Value)
		}
	}
	return ""
}

// counter is a number that each call increments.
var counter = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(s, in, _ any) (bool, any) {
		n := s.(int) + 1
		return in.(string) == "" || in.(string) == strconv.Itoa(n), n
	},
}

type queued struct {
	o      *op
	answer string
}

// fifo is the elements of a queue, each followed by a blank.
var fifo = porcupine.Model{
	Init: func() any { return "" },
	Step: func(s, in, _ any) (bool, any) {
		q, elements := in.(queued), s.(string)
		if keyOf(q.o) == "/x/push" {
			return true, elements + string(q.o.req.(*pb.PutRequest).Value) + " "
		}
		first, rest, _ := strings.Cut(elements, " ")
		return q.o.state != ok || q.answer == first, rest
	},
}

// compareRegistries: all servers know the same extensions (I6).
func (c *cluster) compareRegistries() {
	want := ""
	for i, s := range c.alive() {
		got := ""
		for _, e := range s.life.core.machine.Extensions().All() {
			got += fmt.Sprintf("%s as of %d, ", e.Name, e.Order)
		}
		if i == 0 {
			want = got
		}
		if got != want {
			c.fail("I6", "server %d knows the extensions %s and another one %s", s.id, got, want)
		}
	}
}
