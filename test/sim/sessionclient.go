package sim

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/session/host"
)

// sessionClient has one session after the other. It doesn't wait for replies; when
// its connection breaks, it goes on anywhere and sends again all that has no reply.
type sessionClient struct {
	c       *cluster
	id      int
	stream  *sessionStream
	opened  bool
	present *sessionPast
	past    []*sessionPast
	ids     int64         // how many attempts to open sessions there were
	pace    time.Duration // between steps, at most
	heard   time.Duration // when something last came
	asked   time.Duration // when something was last sent
}

// sessionPast is a session as its client knows it.
type sessionPast struct {
	id, ttl int64
	term    *term    // that of the user whose session it is; nil: the servers' own
	few     *fewUser // the user, if it has few rights
	who     string   // the client, where extensions are to know it
	grant   *op      // the last attempt to open it
	tried   bool
	granted bool
	asked   []*asking // by number, from 1
	replied int       // to so many
	seen    int64     // by replies
	shown   int64     // by replies and events
	ordered int64     // the last event of an ordered watch
	watches []*sessionWatch
	closing bool          // the last request is CLOSE
	alive   time.Duration // when the last request that was answered had been sent
}

// asking is one request of a session.
type asking struct {
	*op
	kind  stoapb.Kind
	level stoapb.Level
	token int64
	seen  int64 // what the session had been shown when this was sent last
	sent  time.Duration
	sends int
}

// sessionWindow is how many requests wait for replies at most.
const sessionWindow = 10

// The leases of sessions have ids that no client uses otherwise.
const sessionLeases = 1 << 32

func (c *cluster) newSessionClient(id int) *sessionClient {
	cl := &sessionClient{c: c, id: 200 + id, pace: pick(c.loop, []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond})}
	cl.begin()
	return cl
}

// begin begins a new session.
func (cl *sessionClient) begin() {
	c := cl.c
	s := &sessionPast{ttl: pick(c.loop, []int64{1, 2, 3, 5, 8})}
	cl.present, cl.past = s, append(cl.past, s)
	cl.attempt()
	if k := c.keeper; k != nil && k.now != nil && !c.quiet && c.loop.chance(2) {
		s.term, s.grant.term = k.now, k.now
	}
	if c.has.calls && s.term == nil && c.loop.chance(2) {
		s.who = pick(c.loop, []string{alice, bob})
	}
	c.steward.newSession(s)
	c.steward.owns(s.grant)
}

// attempt is one to open the session, with an ID of its own: a server gives each another, so that one which comes late
// opens a session that nobody has.
func (cl *sessionClient) attempt() {
	c, s := cl.c, cl.present
	s.id = sessionLeases + int64(cl.id)<<16 + cl.ids
	cl.ids++
	s.grant = &op{
		id: len(c.history), client: cl.id, req: &pb.LeaseGrantRequest{ID: s.id, TTL: host.LeaseTTL(s.ttl)}, strict: true,
		call: c.loop.now, floor: c.floor, state: unknown, term: s.term, few: s.few,
	}
	c.history = append(c.history, s.grant)
}

// user is the one whose session it is.
func (s *sessionPast) user(c *cluster) uint64 {
	if s.term != nil {
		return s.term.credential
	}
	if s.few != nil {
		return s.few.credential
	}
	return c.own()
}

// mayWatch reports whether it is one of those that watch.
func (s *sessionPast) mayWatch(c *cluster) bool { return s.term == nil || c.has.looks || s.few != nil }

// live runs the client, step by step.
func (cl *sessionClient) live() {
	c := cl.c
	if c.survivor != nil {
		return
	}
	c.loop.after(c.loop.between(0, cl.pace), "session client", uint64(cl.id), 0, cl.live)
	s := cl.present
	switch {
	case cl.stream == nil:
		cl.connect()
	case c.loop.now-cl.heard > clientTimeout && (s.replied < len(s.asked) || !cl.opened):
		cl.lost()
	case !cl.opened:
	case !c.quiet && c.loop.chance(60):
		cl.lost()
	case !c.quiet && c.loop.chance(300): // gives the session up
		cl.lost()
		cl.begin()
	case c.quiet && !s.closing && s.replied == len(s.asked) && c.sessionWatchesAt(c.floor) != nil:
		cl.hand(&asking{op: &op{req: &pb.WatchProgressRequest{}, strict: true}, kind: stoapb.Kind_PROGRESS})
	case !c.quiet && !s.closing && s.mayWatch(c) && c.loop.chance(8) && len(s.asked)-s.replied < sessionWindow:
		cl.hand(cl.watching()...)
	case !c.quiet && !s.closing && len(s.asked)-s.replied < sessionWindow:
		cl.ask()
	case c.loop.now-cl.asked > time.Duration(s.ttl)*time.Second/4:
		cl.send(nil)
	}
}

// connect opens the session on some server.
func (cl *sessionClient) connect() {
	c, s := cl.c, cl.present
	sv := pick(c.loop, c.servers)
	if (c.has.waits || c.has.looks) && c.loop.chance(2) {
		sv = c.laggard(sv)
	}
	if sv.life == nil {
		return
	}
	l := sv.life
	fresh := !s.granted
	if fresh && s.tried {
		cl.attempt()
		c.steward.owns(s.grant)
	}
	s.tried = true
	st := &sessionStream{cl: cl, life: l, id: s.id, user: s.user(c), again: s.carried(), taken: map[uint64]*takenIn{}}
	cl.stream, cl.opened, cl.heard = st, false, c.loop.now
	c.loop.printf("session %d connects to server %d, from request %d", s.id, sv.id, s.replied+1)
	if len(s.asked) == 0 && c.loop.chance(2) { // another session has handed over what it has seen
		s.seen, s.shown = max(s.seen, c.floor), max(s.shown, c.floor)
	}
	ask := &stoapb.OpenSession{Session: s.id, Client: s.who, Ttl: s.ttl, Next: uint64(s.replied + 1), Sent: s.carried(), Revision: s.shown}
	watches := s.resumed(c)
	if fresh {
		s.grant.sentBy(st.user)
	}
	st.up.send(c.loop, "session opens", sv.id, uint64(cl.id), func() {
		l.now("session opens", uint64(cl.id), func() {
			st.knew = l.knows()
			l.openSession(st, ask, st.user, fresh, watches, func(m proto.Message, err error) {
				st.toClient.send(c.loop, "session opened", sv.id, uint64(cl.id), func() {
					if cl.stream == st && !l.ended {
						cl.open(m, err)
					}
				})
			})
		})
	})
}

// looksAtOnce has a client begin anew, now that there is a user of whom some servers may not have heard.
func (c *cluster) looksAtOnce() {
	if !c.has.looks || len(c.sessions) == 0 || c.quiet {
		return
	}
	cl := pick(c.loop, c.sessions)
	if cl.stream != nil {
		cl.lost()
	}
	cl.begin()
}

// laggard is a server of which others know more than it does, or else the given one.
func (c *cluster) laggard(usual *server) *server {
	behind := usual
	for _, sv := range c.servers {
		if sv.life != nil && (behind.life == nil || sv.life.hub.Rev() < behind.life.hub.Rev()) {
			behind = sv
		}
	}
	return behind
}

// carried is the highest number that a stream has carried.
func (s *sessionPast) carried() uint64 {
	n := len(s.asked)
	for n > 0 && s.asked[n-1].sends == 0 {
		n--
	}
	return uint64(n)
}

// open handles the server's answer to connect.
func (cl *sessionClient) open(m proto.Message, err error) {
	c, s := cl.c, cl.present
	c.loop.printf("session %d is open: %v", s.id, err)
	switch {
	case errors.Is(err, fault.LeaseExists):
		c.fail("I1", "session %d was opened twice by one attempt: its lease exists", s.id)
		return
	case errors.Is(err, fault.LeaseNotFound), noRights(err) && cl.barred():
		cl.gone()
		return
	case err != nil:
		cl.lost()
		return
	}
	if g, is := m.(*pb.LeaseGrantResponse); is && s.grant.state != ok {
		s.granted = true
		s.grant.state, s.grant.resp, s.grant.content, s.grant.rev, s.grant.ret = ok, g, bare(g), g.Header.GetRevision(), c.loop.now
	}
	cl.opened, cl.heard = true, c.loop.now
	cl.looksAgain()
	c.stats.Resumed++
	cl.send(s.asked[s.replied:])
	if !c.quiet && !s.closing && s.mayWatch(c) && s.replied == len(s.asked) && c.loop.chance(2) { // of a server that may be behind
		if c.has.waits && s.who != "" && len(s.watches) < mostWaiters && c.loop.chance(2) {
			cl.hand(c.inSession(c.wait(s.who, 0), nil))
			return
		}
		cl.hand(cl.watching()...)
	}
}

// lost reconnects to any server.
func (cl *sessionClient) lost() {
	cl.stream.hangUp()
	cl.stream, cl.opened = nil, false
}

// gone begins a new session: this one has ended.
func (cl *sessionClient) gone() {
	s := cl.present
	cl.c.loop.printf("session %d has ended", s.id)
	cl.lost()
	cl.begin()
}

// ask makes a few requests.
func (cl *sessionClient) ask() {
	c := cl.c
	all := c.sessionRequests(cl.present)
	if c.loop.chance(10) { // another session has handed over what it has seen
		all = append(c.handedOver(), all...)
	}
	cl.hand(all...)
}

// hand sends new requests.
func (cl *sessionClient) hand(list ...*asking) {
	s := cl.present
	from := len(s.asked)
	for _, a := range list {
		o := a.op
		o.id, o.client, o.call, o.floor, o.state = len(cl.c.history), cl.id, cl.c.loop.now, cl.c.floor, unknown
		o.term, o.few, o.user = s.term, s.few, cl.stream.user
		if !a.watching() || a.who != "" {
			cl.c.history = append(cl.c.history, o)
		}
		cl.c.stats.Requests++
		cl.c.stats.InSession++
		s.asked = append(s.asked, a)
	}
	cl.send(s.asked[from:])
}

// send sends requests, the last ones, in one message or several.
func (cl *sessionClient) send(list []*asking) {
	c, s := cl.c, cl.present
	cl.asked = c.loop.now
	seq := uint64(len(s.asked) - len(list))
	for first := true; first || len(list) > 0; first = false {
		n := min(len(list), 1+c.loop.rng.IntN(8))
		items := session.NewItems(n)
		for i, a := range list[:n] {
			seq++
			a.sends++
			a.seen, a.sent = s.shown, c.loop.now
			a.server = cl.stream.life.sv.id
			if a.sends > 1 {
				c.stats.Resent++
			}
			a.fill(&items[i], seq)
			c.loop.printf("session %d sends %d to server %d: %s", s.id, seq, a.server, a)
		}
		cl.stream.ask(items, list[:n], uint64(s.replied))
		list = list[n:]
	}
}

// fill writes a request as the services do that decode it.
func (a *asking) fill(it *session.Item, seq uint64) {
	body, err := proto.Marshal(a.req)
	if err != nil {
		panic(err)
	}
	it.Seq, it.Token, it.Bytes = seq, a.token, len(body)
	it.Kind, it.Level, it.Body = a.kind, a.level, body
	if a.kind == stoapb.Kind_KIND_UNSPECIFIED {
		it.Done, it.Err = true, errForm
	}
	switch r := a.req.(type) {
	case *pb.PutRequest:
		if it.Key = r.Key; !r.PrevKv {
			return
		}
	case *pb.RangeRequest:
		if it.Key = r.Key; proto.Equal(r, &pb.RangeRequest{Key: r.Key}) {
			return
		}
	}
	it.Message = proto.Clone(a.req)
}

// errForm is the services' error for an invalid request.
var errForm = errors.New("the request is malformed")

// hear processes received messages.
func (cl *sessionClient) hear(words []said) {
	cl.heard = cl.c.loop.now
	for _, w := range words {
		switch {
		case w.event != nil:
			cl.event(&w)
		case w.end:
			cl.ended(w.err)
			return
		case !cl.reply(&w):
			return
		}
	}
	cl.given()
}

func (cl *sessionClient) ended(err error) {
	switch {
	case err == nil || errors.Is(err, fault.SessionGone) || noRights(err) && cl.barred():
		cl.gone()
	default:
		cl.lost()
	}
}

// reply takes a reply: in order, each once.
func (cl *sessionClient) reply(w *said) bool {
	c, s := cl.c, cl.present
	if w.seq != uint64(s.replied+1) || s.replied == len(s.asked) {
		c.fail("session", "session %d hears the reply to request %d after %d replies", s.id, w.seq, s.replied)
		return false
	}
	a := s.asked[s.replied]
	s.replied++
	a.ret, s.alive = c.loop.now, a.sent
	c.loop.note(w.seq, uint64(w.rev))
	c.loop.printf("session %d hears about %s: revision %d, %v", s.id, a, w.rev, w.err)
	// Later reads see it too, also if this request fails, and over other streams: clients open them
	// with the highest token that they were given.
	defer func() { s.seen, s.shown = max(s.seen, a.token), max(s.shown, a.token) }()
	switch {
	case a.kind == stoapb.Kind_CLOSE:
	case a.watching() && w.err == nil:
		cl.watchReply(a, w)
	case errors.Is(w.err, errForm):
		a.state, a.err = refused, w.err
	case errors.Is(w.err, fault.ReadOvertaken):
		c.stats.Overtaken++
		a.state, a.err = refused, w.err
	case errors.Is(w.err, fault.ResultForgotten) && a.who != "" && (isRead(a.req) || a.watching()): // not a call the first time, or one whose result is gone
		a.err = w.err
	case errors.Is(w.err, fault.ResultForgotten):
		c.fail("session", "session %d: the result of %s, which had no reply, is forgotten", s.id, a)
		return false
	case w.err != nil && harmless(w.err) && !c.refusedElsewhere(a, w.err):
		c.noteQuota(w.err)
		a.state, a.err = refused, w.err
	case w.err != nil:
		a.err = w.err
	default:
		c.stats.Answered++
		a.state, a.resp, a.rev, a.content = ok, w.response, w.rev, bare(w.response)
		c.checkUser(a.op)
		cl.judge(a, w)
	}
	return c.failure == nil
}

// refusedElsewhere reports whether a write may have taken effect although it was refused: below level 7 a copy could be
// refused by a partition that knew nothing of the first.
func (c *cluster) refusedElsewhere(a *asking, err error) bool {
	return c.upgrader != nil && a.sends > 1 && (noRights(err) || errors.Is(err, fault.Corrupt) || errors.Is(err, fault.NoSpace))
}

// judge checks a reply against the revisions that the session and others were
// shown before.
func (cl *sessionClient) judge(a *asking, w *said) {
	c, s := cl.c, cl.present
	head := a.resp.(answered).GetHeader().GetRevision()
	switch {
	case head != w.rev:
		c.fail("session", "%s is answered with revision %d, and %d in its header", a, w.rev, head)
	case a.strict && a.rev < a.floor:
		c.fail("I1", "%s is answered at revision %d, after a client was shown revision %d", a, a.rev, a.floor)
	case a.level != stoapb.Level_FAST && a.rev < max(s.seen, a.seen, a.token) && (a.reads() || a.sends == 1):
		c.fail("session", "%s of session %d, which has seen revision %d and asks for %d, is answered at revision %d", a, s.id, max(s.seen, a.seen), a.token, a.rev)
	}
	if a.level != stoapb.Level_FAST {
		s.seen = max(s.seen, a.rev)
		s.shown = max(s.shown, a.rev)
	}
	if a.reflecting() {
		cl.reflects(a.rev, false)
	}
	c.see(a.rev)
}

// watching reports that the request concerns watches.
func (a *asking) watching() bool {
	switch a.kind {
	case stoapb.Kind_WATCH, stoapb.Kind_CANCEL, stoapb.Kind_PROGRESS, stoapb.Kind_SYNC:
		return true
	}
	return false
}
