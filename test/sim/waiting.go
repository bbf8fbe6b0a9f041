package sim

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// In some of the runs that have some of all, clients wait for what others give, by an extension that handles
// the opening of a watch (block): it answers with something that was given before, or has the client wait for a key.

// line is the extension. What one now asks for is handed over once; what others ask for is kept for them.
const line = `return {
  scope = { "/x/line/", "/x/stock/", "/x/given/" },
  operations = { { op = "put", key = "/x/give" }, { op = "block", prefix = "/x/wait/" } },
  put = function(r)
    local first = range("/x/line/", 1)[1]
    if first then
      delete(first.key)
      put("/x/given/" .. first.value, r.value)
    else
      put("/x/stock/" .. string.format("%10d", revision()), r.value)
    end
    return r.value
  end,
  block = function(r)
    local id = r.key:sub(9)
    local given = "/x/given/" .. id
    local stock = range("/x/stock/", 1)[1]
    if get(given) then
      block(given)
    elseif not stock then
      put("/x/line/" .. id, id)
      block(given)
    elseif id:startswith("now") then
      delete(stock.key)
      return stock.value
    else
      delete(stock.key)
      put(given, stock.value)
      block(given)
    end
  end,
}`

const waits, given = "/x/wait/", "/x/given/"

// mostWaiters is how many clients of watch streams wait at most.
const mostWaiters = 8

// wait draws a request that gives something, or waits for something.
func (c *cluster) wait(who string, waiting int) request {
	if waiting >= mostWaiters || c.loop.chance(2) {
		return by(who, strictly(&pb.PutRequest{Key: []byte("/x/give"), Value: c.value()}))
	}
	r := &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "%s%s%d", waits, pick(c.loop, []string{"now", "keep"}), len(c.history))}
	if n := len(c.history); n > 0 && c.loop.chance(4) { // as a client that has lost its connection
		if again, is := c.history[n-1-c.loop.rng.IntN(min(n, 30))].req.(*pb.WatchCreateRequest); is {
			r.Key, r.StartRevision = again.Key, c.floor+1
		}
	}
	return by(who, strictly(r))
}

// errOrdinary says that a watch is one that no extension handles.
var errOrdinary = errors.New("it is an ordinary watch")

// opening opens the watch, as package rpc does, when an extension has handled its opening.
func (l *life) opening(o *op, done func(replica.Outcome)) func(replica.Outcome) {
	return func(out replica.Outcome) {
		if out.Err == nil {
			l.after(l.between(0, l.sv.c.plan.delay), "waits", uint64(o.client), func() { l.waits(o, out.Response.(*pb.RangeResponse)) })
		}
		done(out)
	}
}

// unhandledWatch makes sure, as node does, that no extension handles the opening of a watch.
func (l *life) unhandledWatch(o *op, r *pb.WatchCreateRequest, who apply.Caller, again func(), reply func(proto.Message, error)) {
	l.unhandled(o, command.Watch, r, &pb.RangeRequest{Key: r.Key}, who, again, func(_ proto.Message, err error) {
		if err == nil { // nothing ever happens to its key
			err = errOrdinary
		}
		reply(nil, err)
	})
}

// waits opens the watch that an extension's answer makes of a client's.
func (l *life) waits(o *op, answer *pb.RangeResponse) {
	if len(answer.Kvs) == 0 { // the client may not use it
		return
	}
	r := &pb.WatchCreateRequest{WatchId: 1, Key: o.req.(*pb.WatchCreateRequest).Key}
	first := apply.WatchAnswer(r, answer)
	w := &watcher{c: l.sv.c, id: 1000 + o.id, pace: l.sv.c.plan.delay, waits: true}
	d := &watched{w: w, key: r.Key, first: first}
	w.c.stats.Waits++
	d.beginsAt(r.StartRevision)
	w.watches = append(w.watches, d)
	w.c.watchers = append(w.c.watchers, w)
	w.attach(l)
	w.stream.CreateWith(r, first)
	w.poke()
	w.ask()
}

// beginsAt is where the events of a watch begin, of which an extension has given the first one. That is no event if nobody has
// written it: a value that was handed over.
func (d *watched) beginsAt(rev int64) {
	d.start, d.next = rev, rev
	if d.first != nil && strings.HasPrefix(string(d.key), given) {
		d.start, d.next = d.first.Kv.ModRevision, d.first.Kv.ModRevision
		d.first = nil
	}
}

// handsOver takes what an extension has answered at once, which is no change of a key.
func (d *watched) handsOver(r *pb.WatchResponse) {
	first := d.first
	if d.first = nil; !proto.Equal(r.Events[0], first) {
		d.w.c.fail("I4", "%s gets %s before what it was answered with, %s", d, name(r.Events[0]), name(first))
		return
	}
	r.Events = r.Events[1:]
}

func opensWatch(r request) bool {
	_, is := r.message.(*pb.WatchCreateRequest)
	return is
}

// asksFor takes a session's reply to what an extension may have handled. It reports whether something that the extension hands over has
// to follow: other first events are of the history, as those behind.
func (cl *sessionClient) asksFor(a *asking, d *watched, resp *pb.WatchResponse) bool {
	if len(resp.Events) == 0 {
		switch a.level {
		case stoapb.Level_STRICT:
			a.state, a.err = refused, errOrdinary
		case stoapb.Level_CAUSAL:
			a.state, a.err, a.floor = refused, errOrdinary, a.seen
		}
		return false
	}
	cl.c.stats.Waits++
	if resp.Header == nil {
		cl.c.fail("session", "session %d isn't told where the watch of %s begins", cl.present.id, a)
		return false
	}
	d.key, d.start = resp.Events[0].Kv.Key, resp.Header.Revision+1
	return bytes.HasPrefix(d.key, []byte(waits))
}

// handedOverTo takes what an extension hands over to a session.
func (cl *sessionClient) handedOverTo(d *sessionWatch, r *pb.WatchResponse) {
	a, e := d.asked, r.Events[0]
	d.asked = nil
	a.state, a.rev, a.content = ok, e.Kv.ModRevision, &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{e.Kv}}
	if len(r.Events) != 1 {
		cl.c.fail("I4", "%s gets more than was handed over: %v", d, r)
	}
}

// given: what is handed over comes with the reply that says so, or is lost if the connection breaks between them.
func (cl *sessionClient) given() {
	for _, d := range cl.present.watches {
		if d.asked != nil {
			cl.c.fail("session", "session %d: %s was handed something over, which didn't come with the reply", cl.present.id, d.asked)
		}
	}
}

// leave ends the stream of a client that has what it was waiting for.
func (w *watcher) leave() {
	w.stream.Close()
	w.life.forget(w)
	w.life = nil
	w.c.finished = append(w.c.finished, w.watches...)
	w.c.withdraw(w)
}

// withdraw forgets a watcher.
func (c *cluster) withdraw(w *watcher) {
	w.gone = true
	for i, other := range c.watchers {
		if other == w {
			c.watchers = append(c.watchers[:i:i], c.watchers[i+1:]...)
			return
		}
	}
}

// waiting is how many clients wait.
func (c *cluster) waiting() (n int) {
	for _, w := range c.watchers {
		if w.waits {
			n++
		}
	}
	return n
}

// hand is the extension's part in what is given, and in a client that waits for it.
func (e *evaluation) hand(key string, value []byte) *mvccpb.KeyValue {
	id, asks := strings.CutPrefix(key, waits)
	stock, first := e.keys.between([]byte("/x/stock/"), []byte("/x/stock0")), e.keys.between([]byte("/x/line/"), []byte("/x/line0"))
	switch {
	case !asks && len(first) > 0:
		e.remove(first[0])
		e.write(given+string(first[0].Value), value, 0)
	case !asks:
		e.write(fmt.Sprintf("/x/stock/%10d", e.rev), value, 0)
	case e.keys.get(given+id) != nil:
		return e.keys.get(given + id)
	case len(stock) == 0:
		e.write("/x/line/"+id, []byte(id), 0)
		return &mvccpb.KeyValue{Key: []byte(given + id)}
	default:
		e.remove(stock[0])
		if value = stock[0].Value; !strings.HasPrefix(id, "now") {
			e.write(given+id, value, 0)
			return e.keys.get(given + id)
		}
	}
	return e.result(key, value)
}

// ordinary says that a request for a key was rightly taken for one that no extension handles: at some time since a
// revision, and before the answer came, none did.
func (p *past) ordinary(o *op, key string, since int64) bool {
	for i := p.index(since); i < len(p.states); i++ {
		e := evaluation{keys: p.states[i], who: o.who}
		if !e.handles(key) {
			return true
		}
		if i < len(p.revisions) && p.revisions[i].at > o.ret {
			break
		}
	}
	return false
}
