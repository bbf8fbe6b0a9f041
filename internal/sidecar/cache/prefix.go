package cache

import (
	"fmt"
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/radix"
)

// A Budget bounds the memory of several prefixes, in bytes.
type Budget struct{ Limit, used int64 }

// Used is how much of it is.
func (b *Budget) Used() int64 { return b.used }

// A Prefix is the cached keys from one on, up to another.
type Prefix struct {
	from, to []byte // as the key and the end of a RangeRequest
	budget   *Budget
	view     atomic.Pointer[View]

	following bool
	round     int // of loading; a gap begins the next
	began     int64
	loading   bool
	at        int64  // of the pages; 0: none has come
	next      []byte // the first key of the next page
	held      []change

	header *pb.ResponseHeader // everything at or below its revision has come
	tree   radix.Tree[kvwire.KeyValue]
	used   int64 // of the budget
	over   bool  // it was too large, until Begin
}

// change is one of the range's keys, with a tombstone for a deletion.
type change struct {
	rev     int64
	kv      kvwire.KeyValue
	deleted bool
}

// New makes a prefix that shows nothing yet. The keys are those of a RangeRequest.
func New(key, end []byte, b *Budget) *Prefix { return &Prefix{from: key, to: end, budget: b} }

// Range is the key and the end of the RangeRequest for all its keys.
func (p *Prefix) Range() (key, end []byte) { return p.from, p.to }

// Covers reports whether a view of the prefix can answer a range; see Answerable.
func (p *Prefix) Covers(r *pb.RangeRequest) bool { return Answerable(r, p.from, p.to) }

// View is what the prefix shows; nil for nothing. Any goroutine may call it.
func (p *Prefix) View() *View { return p.view.Load() }

// Following reports whether the prefix uses the events that it gets: from Begin to End, unless it is
// TooLarge.
func (p *Prefix) Following() bool { return p.following }

// TooLarge reports whether it did not fit into the budget.
func (p *Prefix) TooLarge() bool { return p.over }

// Used is the memory that it takes.
func (p *Prefix) Used() int64 { return p.used }

// Begin implements relay.Follower: all keys have to be loaded.
func (p *Prefix) Begin(rev int64) {
	p.drop()
	p.following, p.over, p.loading = true, false, true
	p.began = rev
}

// End stops showing anything, until Begin.
func (p *Prefix) End(string) {
	p.drop()
	p.following = false
}

func (p *Prefix) drop() {
	p.view.Store(nil)
	p.budget.used -= p.used
	p.round++
	p.loading, p.at, p.next, p.held, p.header, p.used = false, 0, nil, nil, nil, 0
	p.tree = radix.Tree[kvwire.KeyValue]{}
}

// A Page is a part of the keys that a prefix has to load.
type Page struct {
	round int
	// Key is where it begins.
	Key []byte
	// Revision is the one to read at; 0 stands for the present one, of a linearizable read.
	Revision int64
}

// Wants is the page that is to be loaded; false if none is.
func (p *Prefix) Wants() (Page, bool) {
	if !p.loading {
		return Page{}, false
	}
	if p.at == 0 {
		return Page{round: p.round, Key: p.from}, true
	}
	return Page{round: p.round, Key: p.next, Revision: p.at}, true
}

// Load takes the page that was wanted. An error says that the answer isn't one to the page: all are
// to be loaded anew.
func (p *Prefix) Load(page Page, r *pb.RangeResponse) error {
	if page.round != p.round || !p.loading {
		return nil // there was a gap meanwhile
	}
	if p.at == 0 {
		if p.at = r.Header.Revision; p.at < p.began {
			p.Reload()
			return fmt.Errorf("a linearizable read at revision %d, after a watch began at %d", r.Header.Revision, p.began)
		}
	}
	for _, kv := range r.Kvs {
		if !p.set(change{kv: kvwire.Of(kv)}) {
			return nil
		}
	}
	if r.More && len(r.Kvs) > 0 {
		p.next = slices.Concat(r.Kvs[len(r.Kvs)-1].Key, []byte{0})
		return nil
	}
	p.loaded(r.Header)
	return nil
}

// Reload begins loading anew, for instance because the revision of the pages was compacted.
func (p *Prefix) Reload() {
	if p.following && !p.over {
		header, began := p.header, p.began
		p.drop()
		p.loading, p.header, p.began = true, header, began
		if header != nil {
			p.began = max(began, header.Revision)
		}
	}
}

// loaded applies what has come while the pages were loaded, and shows the result.
func (p *Prefix) loaded(h *pb.ResponseHeader) {
	p.loading = false
	held := p.held
	p.held = nil
	for _, c := range held {
		p.charge(-c.size())
		if c.rev > p.at && !p.set(c) {
			return
		}
	}
	if p.header == nil || p.header.Revision < p.at {
		p.header = &pb.ResponseHeader{ClusterId: h.ClusterId, MemberId: h.MemberId, RaftTerm: h.RaftTerm, Revision: p.at}
	}
	p.show()
}

func (p *Prefix) show() {
	p.view.Store(&View{header: p.header, tree: p.tree})
}
