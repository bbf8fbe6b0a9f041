package compose

import (
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// flatten checks the mirrors of all routes, and determines which keys each of them has and
// where they are read. It is ZooFence's flattening function: from a prefix to the set of the
// clusters that have it.
func (t *routing) flatten() error {
	for i := range t.routes {
		r := &t.routes[i]
		if err := t.checkMirrors(r); err != nil {
			return err
		}
		if len(r.mirrors) == 0 {
			continue
		}
		r.keys = mirrored.Mirrored{Prefix: r.prefix}
		for j := range t.routes {
			if p := t.routes[j].prefix; p != r.prefix && strings.HasPrefix(p, r.prefix) {
				r.keys.Except = append(r.keys.Except, p)
			}
		}
		r.mark, r.said = r.keys.MarkKey(), r.keys.String()
		if slices.Contains(r.mirrors, t.local) {
			r.view, r.places = t.viewOf(r.cluster), new([nearbyAtMost]places)
		}
	}
	return nil
}

// viewOf is the target at which mirrored keys of a cluster are read.
func (t *routing) viewOf(home int) int {
	at := slices.Index(t.views, home)
	if at < 0 {
		at = len(t.views)
		t.views = append(t.views, home)
	}
	return len(t.names) + at
}

// targets are all that requests can go to, the clusters first and then the views; each with
// its cluster.
func (t *routing) targets() (clusters []int) {
	for i := range t.names {
		clusters = append(clusters, i)
	}
	return append(clusters, t.views...)
}

func (t *routing) checkMirrors(r *route) error {
	if outer := t.outer(r); outer != nil && len(outer.mirrors) > 0 {
		// P2 of ZooFence (§III-C): otherwise no cluster had all keys of a range.
		for _, c := range r.clusters() {
			if !slices.Contains(outer.clusters(), c) {
				return fmt.Errorf("compose: the route of %q leads to %q, but %q, in which it lies, is mirrored and not there",
					r.prefix, t.names[c], outer.prefix)
			}
		}
	}
	if len(r.mirrors) == 0 {
		return nil
	}
	if r.locks {
		return fmt.Errorf("compose: the route of %q is mirrored and can't have transactions: a mirror doesn't have the locks", r.prefix)
	}
	if r.strip {
		return fmt.Errorf("compose: the route of %q is mirrored and can't be stripped: keys have the same names in all its clusters", r.prefix)
	}
	if strings.HasPrefix(r.prefix, mirrored.Reserved) {
		return fmt.Errorf("compose: the route of %q can't be mirrored: mirrors keep their own keys below %s", r.prefix, mirrored.Reserved)
	}
	for i, at := range r.mirrors {
		switch {
		case at < 0:
			return fmt.Errorf("compose: a mirror of %q is in none of the clusters", r.prefix)
		case at == r.cluster:
			return fmt.Errorf("compose: %q is the home of %q, and can't be its mirror", t.names[at], r.prefix)
		case slices.Contains(r.mirrors[:i], at):
			return fmt.Errorf("compose: %q is named twice as a mirror of %q", t.names[at], r.prefix)
		}
		for j := range t.routes {
			if o := &t.routes[j]; o.strip && o.cluster == at {
				return fmt.Errorf("compose: %q can't be mirrored to %q: the route of %q strips the keys there, so that they could be those of the mirror",
					r.prefix, t.names[at], o.prefix)
			}
		}
	}
	return nil
}

// outer is the route that has the keys around a route's, nil if there is none.
func (t *routing) outer(r *route) (outer *route) {
	for i := range t.routes {
		o := &t.routes[i]
		if o != r && strings.HasPrefix(r.prefix, o.prefix) && (outer == nil || len(o.prefix) > len(outer.prefix)) {
			outer = o
		}
	}
	return outer
}

// clusters are the route's home and its mirrors.
func (r *route) clusters() []int { return append([]int{r.cluster}, r.mirrors...) }

// read is where a read of the segment goes: to a view, if that has all the keys and can
// answer it.
func (s *segment) read(q *pb.RangeRequest) placement {
	p := s.placed(q)
	if q, ok := p.message.(*pb.RangeRequest); ok && s.view != noView && !s.several && isPresent(q) {
		p.cluster, p.mirrored = s.view, s.route
	}
	return p
}

// isPresent reports that a read asks for nothing that only the keys' home knows: the past,
// and orders other than that of the keys, since a mirror's own revisions and values are
// different ones.
func isPresent(q *pb.RangeRequest) bool {
	return q.Revision == 0 && q.SortTarget == pb.RangeRequest_KEY &&
		q.MinModRevision == 0 && q.MaxModRevision == 0 && q.MinCreateRevision == 0 && q.MaxCreateRevision == 0
}
