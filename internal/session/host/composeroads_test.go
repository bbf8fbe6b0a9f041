package host

import (
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// road is a route as the test knows it.
type road struct {
	prefix   string
	cluster  int
	strip    bool
	locks    bool
	mirrored bool
}

// roads are the routes of a run. In the clusters the keys that are compared in transactions over them, and those that are
// copied, come behind all that is deleted below other names.
type roads []road

func newRoads(clusters int) (all roads) {
	for i := range clusters {
		all = append(all, road{prefix: fmt.Sprintf("/c%d/", i), cluster: i}, road{prefix: fmt.Sprintf("t%d/", i), cluster: i, locks: true})
		if i != 1 { // nothing may be stripped where the copy is
			all = append(all, road{prefix: fmt.Sprintf("/s%d/", i), cluster: i, strip: true})
		}
	}
	return append(all, road{prefix: "/c0/n/", cluster: 1}, road{prefix: "u/", mirrored: true})
}

// of is the road of a key, nil if it has none.
func (all roads) of(key string) (found *road) {
	for i := range all {
		if r := &all[i]; strings.HasPrefix(key, r.prefix) && (found == nil || len(r.prefix) > len(found.prefix)) {
			found = r
		}
	}
	return found
}

func (r *road) there(key string) string {
	if r.strip {
		return key[len(r.prefix):]
	}
	return key
}

// names are all names that a key of a cluster has.
func (all roads) names(cluster int, key string) (names []string) {
	if strings.HasPrefix(key, "/stoa/") {
		return nil
	}
	for i := range all {
		r, name := &all[i], key
		if r.strip {
			name = r.prefix + key
		}
		if r.cluster == cluster && all.of(name) == r {
			names = append(names, name)
		}
	}
	return names
}

// stretch is a part of a range that has one route, or several of one cluster that name keys as the cluster does.
type stretch struct {
	road     *road
	from, to string
}

// stretches cuts a range up.
func (all roads) stretches(from, to string) (cut []stretch) {
	points := []string{from}
	for _, r := range all {
		for _, p := range []string{r.prefix, prefixEnd(r.prefix)} {
			if p > from && p < to {
				points = append(points, p)
			}
		}
	}
	points = sorted(points)
	for i, p := range points {
		end := to
		if i+1 < len(points) {
			end = points[i+1]
		}
		r := all.of(p)
		switch n := len(cut); {
		case r == nil:
		case n > 0 && cut[n-1].to == p && (cut[n-1].road == r || cut[n-1].road.cluster == r.cluster && !r.strip && !cut[n-1].road.strip):
			cut[n-1].to = end
		default:
			cut = append(cut, stretch{r, p, end})
		}
	}
	return cut
}

func prefixEnd(p string) string { return clientv3.GetPrefixRangeEnd(p) }

func sorted(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
