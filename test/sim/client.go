package sim

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// op is one request of a client, and its outcome.
type op struct {
	id, client int
	server     uint64
	req        proto.Message
	strict     bool
	who        string   // the client, where extensions are to know it
	user       uint64   // its credential
	again      []uint64 // others that it was sent with, in a session
	as         string   // the user, where extensions' registrars are noted
	term       *term    // of the user; nil: it has all rights
	few        *fewUser // the user, if it has few rights
	carries    int64    // the lease that the client names to extensions
	knew       uint64   // the rights that the server knew when the request came, by their revision
	call, ret  time.Duration
	floor      int64 // the highest revision that any client had been shown before
	state      outcome
	resp       proto.Message
	rev        int64 // the answer's header
	err        error

	told     *life // the process that it was sent to, and
	shown    int64 // highest revision that watches there had announced
	life     *life // where it is being served
	answered bool
	effect   int64         // the revision that it wrote, once that is known
	content  proto.Message // of the answer, without its headers
}

type outcome int

const (
	open    outcome = iota // not answered yet
	ok                     // answered
	refused                // answered with an error that means that it had no effect
	unknown                // may have happened, may still happen
)

// client sends one request after the other.
type client struct {
	c       *cluster
	id      int
	pinned  bool // always talks to the same server
	at      int  // of the servers
	down    bool // the last request's server didn't answer
	current *op
	lessee  *lessee // who decides what is asked; nil: nobody does
}

// clientTimeout is when a client stops waiting.
const clientTimeout = 2500 * time.Millisecond

func newClient(c *cluster, id int) *client {
	return &client{c: c, id: id, pinned: c.loop.chance(2), at: c.loop.rng.IntN(len(c.servers))}
}

// think plans the next request.
func (cl *client) think() {
	d := cl.c.loop.between(0, cl.c.plan.think)
	if cl.down {
		d += cl.c.loop.between(0, 50*time.Millisecond)
	}
	cl.c.loop.after(d, "client", uint64(cl.id), 0, func() {
		switch {
		case cl.c.quiet:
		case cl.lessee != nil:
			cl.lessee.last = cl.send(cl.lessee.next())
		default:
			r := cl.c.request()
			cl.c.someone(&r)
			cl.c.steward.isFew(&r)
			cl.send(r)
		}
	})
}

// send sends a request to a server.
func (cl *client) send(r request) *op {
	c := cl.c
	if !cl.pinned {
		cl.at = (cl.at + 1) % len(c.servers)
	}
	sv := c.servers[cl.at]
	o := &op{
		id: len(c.history), client: cl.id, server: sv.id, req: r.message, strict: r.strict, who: r.who, user: c.own(), term: r.term, few: r.few, carries: r.carries,
		call: c.loop.now, floor: c.floor,
	}
	switch {
	case r.term != nil:
		o.user = r.term.credential
	case r.few != nil:
		o.user, o.as = r.few.credential, fmt.Sprintf("%d %s", r.few.id, r.few.name)
	case r.who == alice && c.keeper != nil:
		o.user, o.as = c.keeper.alice.Credential, fmt.Sprintf("%d %s", c.keeper.alice.ID, alice)
	}
	if o.told = sv.life; sv.life != nil {
		o.shown = sv.life.announced
	}
	c.history = append(c.history, o)
	c.steward.owns(o)
	c.stats.Requests++
	cl.current = o
	c.loop.printf("client %d asks server %d: %s", cl.id, sv.id, o)
	c.loop.after(c.loop.between(50*time.Microsecond, time.Millisecond), "request", sv.id, uint64(cl.id), func() {
		if sv.life == nil {
			cl.finish(o, refused, nil, errDown)
			return
		}
		o.life, o.knew = sv.life, sv.life.knows()
		sv.life.now("request", uint64(cl.id), func() { sv.life.serve(o, func(m proto.Message, err error) { cl.answer(o, m, err) }) })
	})
	c.loop.after(clientTimeout, "timeout", sv.id, uint64(cl.id), func() {
		if cl.current == o {
			cl.finish(o, unknown, nil, errClientTimeout)
		}
	})
	return o
}

var (
	errDown          = errors.New("the server is down")
	errLost          = errors.New("the connection broke")
	errClientTimeout = errors.New("the client's timeout expired")
)

// answer is the server's; it takes a while to come.
func (cl *client) answer(o *op, m proto.Message, err error) {
	c := cl.c
	if o.answered {
		c.fail("answer", "request %d was answered twice", o.id)
		return
	}
	o.answered = true
	life := o.life
	c.loop.after(c.loop.between(50*time.Microsecond, time.Millisecond), "answer", o.server, uint64(cl.id), func() {
		switch {
		case cl.current != o || life.ended:
		case err == nil:
			cl.finish(o, ok, m, nil)
		case harmless(err):
			c.noteQuota(err)
			cl.finish(o, refused, nil, err)
		default:
			cl.finish(o, unknown, nil, err)
		}
	})
}

// harmless reports errors of requests without an effect.
func harmless(err error) bool {
	for _, f := range [...]error{
		fault.Compacted, fault.FutureRevision, fault.KeyNotFound, fault.LeaseNotFound, fault.LeaseExists, fault.TooManyRequests,
		fault.BadExtension, fault.NoExtension, fault.ExtensionDisabled,
		fault.PermissionDenied, fault.AuthOldRevision, fault.UserEmpty,
		fault.QuotaExceeded, fault.Corrupt, fault.NoSpace,
		errOrdinary,
	} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// lost ends requests to a process that has ended.
func (cl *client) lost(l *life) {
	if o := cl.current; o != nil && o.life == l {
		cl.c.loop.after(cl.c.loop.between(0, 10*time.Millisecond), "connection lost", l.sv.id, uint64(cl.id), func() {
			if cl.current == o {
				cl.finish(o, unknown, nil, errLost)
			}
		})
	}
}

type answered interface{ GetHeader() *pb.ResponseHeader }

// finish ends a request. Its answer must not be older than what any client was
// shown before it was sent (I1, I2).
func (cl *client) finish(o *op, state outcome, m proto.Message, err error) {
	c := cl.c
	o.state, o.resp, o.err, o.ret = state, m, err, c.loop.now
	cl.current, cl.down = nil, err == errDown
	c.loop.note(uint64(state))
	switch state {
	case ok:
		c.stats.Answered++
		c.checkUser(o)
		o.rev = m.(answered).GetHeader().GetRevision()
		o.content = bare(m)
		c.loop.note(uint64(o.rev))
		if o.strict && o.rev < o.floor {
			c.fail("I1", "%s is answered at revision %d, after a client was shown revision %d", o, o.rev, o.floor)
		}
		if o.reads() && o.life == o.told && o.rev < o.shown {
			c.fail("I4", "%s is answered at revision %d, after a watch there had announced revision %d", o, o.rev, o.shown)
		}
		c.see(o.rev)
	case refused:
		if r, is := o.req.(*pb.RangeRequest); is && o.strict && errors.Is(err, fault.FutureRevision) && r.Revision <= o.floor {
			c.fail("I2", "%s calls revision %d a future one, after a client was shown revision %d", o, r.Revision, o.floor)
		}
	case unknown:
		c.stats.Unknown++
	}
	c.loop.printf("client %d hears from server %d about request %d: %v at revision %d, %v", cl.id, o.server, o.id, state, o.rev, err)
	cl.think()
}

func (s outcome) String() string { return [...]string{"open", "ok", "refused", "unknown"}[s] }

// reads reports that a request can't write: all that an extension may handle
// can.
func (o *op) reads() bool { return o.who == "" && isRead(o.req) }

func (o *op) String() string {
	kind := ""
	if r, is := o.req.(*pb.RangeRequest); is && r.Serializable {
		kind = "serializable "
	}
	return fmt.Sprintf("request %d of client %d to server %d (%s%s %v)", o.id, o.client, o.server, kind, o.req.ProtoReflect().Descriptor().Name(), o.req)
}
