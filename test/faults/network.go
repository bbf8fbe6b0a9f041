package faults

import (
	"context"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// Faults of the network between servers, and between servers and clients: each server is in a
// network namespace of its own, region i for server i, and this program with its clients in the
// last one.

// regions is how many servers there is room for.
const regions = 5

// way is one direction between two regions.
type way struct{ from, to int }

// networkFaults are those of faults that need regions.
var networkFaults = map[string]func(*nemesis, context.Context) error{
	"cut one off": func(n *nemesis, _ context.Context) error {
		s := n.any()
		return n.cut(both(n.at(s), append(n.peers(s), n.clients())...))
	},
	// It leads on as far as it knows, and clients still reach it.
	"cut the leader off from its peers": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.cut(both(n.at(s), n.peers(s)...))
	},
	"the leader hears nobody": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.cut(into(n.at(s), n.peers(s)...))
	},
	"nobody hears the leader": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		return n.cut(outOf(n.at(s), n.peers(s)...))
	},
	"one hears nobody": func(n *nemesis, _ context.Context) error {
		s := n.any()
		return n.cut(into(n.at(s), n.peers(s)...))
	},
	// Two don't hear each other, all others hear both.
	"bridge": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		peers := n.peers(s)
		return n.cut(both(n.at(s), peers[n.rnd.IntN(len(peers))]))
	},
	// Everybody hears a majority, of five, but no two the same one.
	"ring of majorities": func(n *nemesis, _ context.Context) error { return n.cut(n.ring()) },
	"cut in two": func(n *nemesis, _ context.Context) error {
		sides := n.rnd.Perm(len(n.cluster.Servers))
		few := len(sides) / 2
		var ways []way
		for _, a := range sides[:few] {
			ways = append(ways, both(a, sides[few:]...)...)
		}
		return n.cut(ways)
	},
	"clients don't reach the leader": func(n *nemesis, ctx context.Context) error {
		return n.cut(both(n.clients(), n.at(n.leader(ctx))))
	},
	"answers of one are lost": func(n *nemesis, _ context.Context) error {
		return n.cut([]way{{n.at(n.any()), n.clients()}})
	},
	"flap": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		for range 4 + n.rnd.IntN(8) {
			n.disturb(region.Quality{Cut: true}, both(n.at(s), n.peers(s)...), 50, 500)
			n.idle(300 * time.Millisecond)
		}
		return nil
	},
	"bad network": func(n *nemesis, _ context.Context) error {
		q := region.Quality{Loss: 0.05, Duplicate: 0.1, Jitter: 30 * time.Millisecond}
		n.disturb(q, n.everywhere(), 1000, 5000)
		return nil
	},
	"the leader is far": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		q := region.Quality{Delay: time.Duration(20+n.rnd.IntN(400)) * time.Millisecond, Jitter: 50 * time.Millisecond}
		n.disturb(q, both(n.at(s), n.peers(s)...), 1000, 5000)
		return nil
	},
	"cut one off, kill another": func(n *nemesis, ctx context.Context) error {
		s := n.any()
		ways := both(n.at(s), n.peers(s)...)
		n.set(region.Quality{Cut: true}, ways)
		killed := n.others(s)[0]
		err := killed.Kill()
		n.idle(2 * time.Second)
		n.set(region.Quality{}, ways)
		if err != nil {
			return err
		}
		return n.revive(ctx, killed)
	},
	"cut the leader off, pause another": func(n *nemesis, ctx context.Context) error {
		s := n.leader(ctx)
		ways := both(n.at(s), n.peers(s)...)
		n.set(region.Quality{Cut: true}, ways)
		err := n.pause(n.others(s)[0])
		n.set(region.Quality{}, ways)
		return err
	},
}

// at is a server's region.
func (n *nemesis) at(s *process.Server) int { return slices.Index(n.cluster.Servers, s) }

func (n *nemesis) clients() int { return regions }

func (n *nemesis) peers(of *process.Server) (at []int) {
	for _, s := range n.others(of) {
		at = append(at, n.at(s))
	}
	return at
}

func outOf(one int, others ...int) (ways []way) {
	for _, o := range others {
		ways = append(ways, way{one, o})
	}
	return ways
}

func into(one int, others ...int) (ways []way) {
	for _, o := range others {
		ways = append(ways, way{o, one})
	}
	return ways
}

func both(one int, others ...int) []way {
	return append(outOf(one, others...), into(one, others...)...)
}

func (n *nemesis) everywhere() (ways []way) {
	for i := range n.cluster.Servers {
		ways = append(ways, both(i, n.clients())...)
		for j := range i {
			ways = append(ways, both(i, j)...)
		}
	}
	return ways
}

// ring are the ways between servers that aren't neighbours, in an order that is drawn.
func (n *nemesis) ring() (ways []way) {
	order := n.rnd.Perm(len(n.cluster.Servers))
	for i := range order {
		for j := range i {
			if d := i - j; d > 1 && d < len(order)-1 {
				ways = append(ways, both(order[i], order[j])...)
			}
		}
	}
	return ways
}

func (n *nemesis) set(q region.Quality, ways []way) {
	for _, w := range ways {
		n.world.Link(w.from, w.to).Set(q)
	}
}

// disturb gives links a quality, for a number of milliseconds that is drawn.
func (n *nemesis) disturb(q region.Quality, ways []way, least, most int) {
	n.set(q, ways)
	time.Sleep(time.Duration(least+n.rnd.IntN(most-least)) * time.Millisecond)
	n.set(region.Quality{}, ways)
}

// cut cuts links for longer or shorter than elections and requests take.
func (n *nemesis) cut(ways []way) error {
	n.disturb(region.Quality{Cut: true}, ways, 200, 6000)
	return nil
}
