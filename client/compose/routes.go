package compose

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// routing finds the route of a key or a range. It never changes.
type routing struct {
	routes []route // longest prefixes first
	names  []string
	strips bool // at least one
	locks  bool // at least one has Transactions
	// local is the cluster whose mirrors are read, views the homes of their keys.
	local int
	views []int
}

// route is a Route with the number of its cluster.
type route struct {
	prefix  string
	end     string // the first key behind those with the prefix; "" if there is none
	cluster int
	strip   bool
	locks   bool // Transactions
	mirrors []int
	// view is the number of the target that the keys are read at instead of the cluster,
	// or noView.
	view int
	// keys are those of its mirrors, mark and said their mark's key and what it says of them.
	keys       mirrored.Mirrored
	mark, said string
	// places is where the mirror next to the client is, as each nearby has seen it; nil without a view.
	places *[nearbyAtMost]places
}

const noView = -1

// newRouting makes the table of the routes. Mirrors in the cluster named local are read
// there.
func newRouting(names []string, routes []Route, local string) (*routing, error) {
	t := &routing{names: names, local: slices.Index(names, local)}
	if local != "" && t.local < 0 {
		return nil, fmt.Errorf("compose: %q, whose mirrors are to be read, is none of the clusters", local)
	}
	for _, r := range routes {
		at := slices.Index(names, r.Cluster)
		if at < 0 {
			return nil, fmt.Errorf("compose: the route of %q leads to %q, which is none of the clusters", r.Prefix, r.Cluster)
		}
		end := ""
		if r.Prefix != "" {
			if end = clientv3.GetPrefixRangeEnd(r.Prefix); end == "\x00" {
				end = ""
			}
		}
		one := route{prefix: r.Prefix, end: end, cluster: at, strip: r.Strip && r.Prefix != "", locks: r.Transactions, view: noView}
		for _, name := range r.Mirrors {
			one.mirrors = append(one.mirrors, slices.Index(names, name))
		}
		t.routes = append(t.routes, one)
		t.strips, t.locks = t.strips || r.Strip, t.locks || r.Transactions
	}
	slices.SortStableFunc(t.routes, func(a, b route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	for i := 1; i < len(t.routes); i++ {
		for j := range i {
			if t.routes[i].prefix == t.routes[j].prefix {
				return nil, fmt.Errorf("compose: there are two routes of %q", t.routes[i].prefix)
			}
		}
	}
	return t, t.flatten()
}

// of is the route of one key.
func (t *routing) of(key string) (*route, error) {
	if r := t.find(key); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNoRoute, key)
}

func (t *routing) find(key string) *route {
	for i := range t.routes {
		if strings.HasPrefix(key, t.routes[i].prefix) {
			return &t.routes[i]
		}
	}
	return nil
}

// keysIn has the first key of all, and one of each route of a cluster, by its name there.
func (t *routing) keysIn(cluster int) [][]byte {
	keys := [][]byte{[]byte(firstKey)}
	for i := range t.routes {
		if s := (segment{route: &t.routes[i], from: t.routes[i].prefix}); s.cluster == cluster {
			key, _ := s.there()
			keys = append(keys, key)
		}
	}
	return keys
}

// segment is a part of a range whose keys have one route, or, if none of the routes
// strips, several of one cluster.
type segment struct {
	*route
	from, to string // "" as to: no end
	several  bool   // of the cluster's routes; route is the first
	locked   bool   // some of the keys may be locked
}

// segments cuts a range into the parts of its routes, in the order of the keys.
// gaps reports whether there are parts without a route. to "" means no end.
func (t *routing) segments(from, to string) (all []segment, gaps bool) {
	cuts := []string{from}
	for i := range t.routes {
		for _, cut := range []string{t.routes[i].prefix, t.routes[i].end} {
			if cut > from && (to == "" || cut < to) {
				cuts = append(cuts, cut)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i, cut := range cuts {
		end := to
		if i+1 < len(cuts) {
			end = cuts[i+1]
		}
		r := t.find(cut)
		if r == nil {
			gaps = true
			continue
		}
		if n := len(all); n > 0 && all[n-1].to == cut && all[n-1].joins(r) {
			all[n-1].several = all[n-1].several || all[n-1].route != r
			all[n-1].locked = all[n-1].locked || r.locks
			all[n-1].to = end
			continue
		}
		all = append(all, segment{route: r, from: cut, to: end, locked: r.locks})
	}
	return all, gaps
}

func (s *segment) joins(r *route) bool {
	return s.route == r || s.cluster == r.cluster && !s.strip && !r.strip
}

// one is the segment of one key.
func (t *routing) one(key []byte) (segment, error) {
	r, err := t.of(string(key))
	if err != nil {
		return segment{}, err
	}
	if isReserved(r.keyThere(string(key))) {
		return segment{}, fmt.Errorf("%w: %q", ErrReserved, key)
	}
	return segment{route: r, from: string(key), locked: r.locks}, nil
}

// single is the only segment of a range, or an error if there isn't exactly
// one.
func (t *routing) single(key, end []byte) (segment, error) {
	if len(end) == 0 {
		return t.one(key)
	}
	from, to := bounds(key, end)
	all, gaps := t.segments(from, to)
	switch {
	case len(all) == 0:
		return segment{}, fmt.Errorf("%w: range %s", ErrNoRoute, spell(from, to))
	case len(all) > 1:
		return segment{}, fmt.Errorf("%w: range %s has %s", ErrSpans, spell(from, to), t.spellAll(all))
	case gaps:
		return segment{}, fmt.Errorf("%w: range %s is in %s in part only", ErrNoRoute, spell(from, to), t.spellAll(all))
	}
	return all[0], all[0].checkReserved()
}

// bounds reads a range of etcd's: an end of one zero byte means none.
func bounds(key, end []byte) (from, to string) {
	if bytes.Equal(end, []byte{0}) {
		return string(key), ""
	}
	return string(key), string(end)
}

// there translates a segment into its cluster's keys.
func (s *segment) there() (key, end []byte) {
	from, to := s.from, s.to
	if s.strip {
		from = from[len(s.prefix):]
		switch {
		case to == s.end:
			to = ""
		case to <= s.from && to != "":
			return noKeys(from)
		case to != "":
			if to = to[len(s.prefix):]; to == firstKey {
				return noKeys(from)
			}
		}
	}
	if from == "" {
		from = firstKey // an empty one is no key
	}
	if to == "" {
		to = noEnd
	}
	return []byte(from), []byte(to)
}

const (
	firstKey = "\x00"
	noEnd    = "\x00" // as the end of a range
)

// noKeys is a range without any, from a key on, whose end isn't taken for none.
func noKeys(from string) (key, end []byte) {
	none := max(from, firstKey+firstKey)
	return []byte(none), []byte(none)
}

// here translates a key of the route's cluster into the composition's.
func (r *route) here(key []byte) []byte {
	if !r.strip {
		return key
	}
	return append(append(make([]byte, 0, len(r.prefix)+len(key)), r.prefix...), key...)
}

// keyThere translates one key into its cluster's.
func (r *route) keyThere(key string) string {
	if r.strip {
		return key[len(r.prefix):]
	}
	return key
}

func spell(from, to string) string {
	if to == "" {
		return fmt.Sprintf("[%q, …)", from)
	}
	return fmt.Sprintf("[%q, %q)", from, to)
}

func (t *routing) spellAll(all []segment) string {
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q (cluster %s)", s.prefix, t.names[s.cluster])
	}
	return b.String()
}
