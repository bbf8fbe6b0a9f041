package differential

import (
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// pair is the reference and the server under test in the same state.
type pair struct {
	ref, sut *side
	revs     *revisions
	dense    bool // the server under test has one partition: no gaps are forgiven
	watches  []*watchPair
	furthest int64    // the highest revision that a watch starts from
	log      []string // what was asked, for the report of a difference
	failed   bool     // the last answer is an error
}

func newPair(ref, sut *side, dense bool) *pair {
	return &pair{ref: ref, sut: sut, revs: newRevisions(), dense: dense}
}

func (p *pair) close() {
	p.stopWatches()
	p.ref.close()
	p.sut.close()
}

// do sends a request to both, in the reference's revisions, and compares the answers.
func (p *pair) do(server int, req proto.Message) error {
	p.log = append(p.log, describe(server, req))
	if err := p.findNow(server, req); err != nil {
		return err
	}
	want := p.ref.call(server, req)
	var translated proto.Message
	switch r := req.(type) {
	case streamed:
		translated = streamed{p.revs.request(r.RangeRequest).(*pb.RangeRequest)}
	case opened:
		translated = opened{p.revs.request(r.WatchRequest).(*pb.WatchRequest)}
	default:
		translated = p.revs.request(req)
	}
	got := p.sut.call(server, translated)
	if err := p.learn(want, got); err != nil {
		return p.difference(req, want, got, err)
	}
	p.failed = want.err != ""
	if want.err != got.err {
		return p.difference(req, want, got, nil)
	}
	if want.err == "" && !proto.Equal(strip(want.msg), p.revs.response(got.msg)) {
		return p.difference(req, want, got, nil)
	}
	return nil
}

// findNow asks for the current revision, where a request names the future: a write that
// failed leaves a gap and tells no revision.
func (p *pair) findNow(server int, req proto.Message) error {
	if p.dense || !p.revs.future(req) {
		return nil
	}
	user := p.sut.user
	p.sut.user = root
	now := p.sut.call(server, &pb.RangeRequest{Key: []byte("start"), CountOnly: true})
	p.sut.user = user
	if now.msg == nil {
		return p.difference(req, answer{}, now, errors.New("asking for the current revision"))
	}
	p.revs.seen = max(p.revs.seen, header(now.msg).GetRevision())
	return nil
}

// root may do everything, if there are users.
const root = "root"

// as has a user send the requests from now on.
func (p *pair) as(user string) {
	if user != p.ref.user {
		p.log = append(p.log, fmt.Sprintf("as %q:", user))
	}
	p.ref.user, p.sut.user = user, user
}

// catchUp brings a server up to date, by a strict read, for requests that etcd
// answers from what the asked server knows.
func (p *pair) catchUp(server int) error {
	return p.do(server, &pb.RangeRequest{Key: []byte("start"), CountOnly: true})
}

// learn pairs the revisions of a write: it was one exactly when the reference's
// revision went on.
func (p *pair) learn(want, got answer) error {
	if want.msg == nil || got.msg == nil {
		return nil
	}
	w, g := header(want.msg).GetRevision(), header(got.msg).GetRevision()
	defer func() { p.revs.seen = max(p.revs.seen, g) }()
	if w > p.revs.current() {
		if err := p.revs.pair(w, g); err != nil {
			return err
		}
	}
	if p.dense && w != g {
		return fmt.Errorf("with one partition revisions are etcd's, but %d is not %d", g, w)
	}
	return nil
}

func (p *pair) difference(req proto.Message, want, got answer, why error) error {
	text := fmt.Sprintf("to %T{%v}\n%s: %v\n%s: %v", req, req, p.ref.name, want, p.sut.name, got)
	if got.msg != nil {
		text += fmt.Sprintf("\n  in %s's revisions: %v", p.ref.name, p.revs.response(got.msg))
	}
	if why != nil {
		text += fmt.Sprintf("\n%v", why)
	}
	text += "\nafter:"
	for _, l := range p.log[max(0, len(p.log)-60):] {
		text += "\n  " + l
	}
	return errors.New(text)
}

func describe(server int, req proto.Message) string {
	return fmt.Sprintf("server %d: %T{%v}", server, req, req)
}

// empty takes out all keys and leases, so that a sequence begins with nothing but a
// higher revision.
func (p *pair) empty(leases []int64) error {
	p.stopWatches()
	p.log = nil
	for _, id := range leases {
		if err := p.do(0, &pb.LeaseRevokeRequest{ID: id}); err != nil {
			return err
		}
	}
	if err := p.do(0, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil {
		return err
	}
	// Something is written, so that the last revision isn't a gap's neighbour only.
	if err := p.do(0, &pb.PutRequest{Key: []byte("start")}); err != nil {
		return err
	}
	return p.do(0, &pb.DeleteRangeRequest{Key: []byte("start")})
}
