package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
)

// saver is a client who takes backups, of any server at any time. It draws from a source of its own.
type saver struct {
	c   *cluster
	rng *rand.Rand
	now *order   // nil: none is under way
	all []*order // answered in the present cluster
}

// order is a request for a backup, with what is known before: a backup has to have that, unless it says that it is stale.
type order struct {
	n      int
	at     time.Duration
	floor  int64
	may    *term   // has rights, and has them until the answer if it isn't asked otherwise
	mayNot *term   // has had them
	leases []int64 // that were granted
	life   *life   // where it is being served
	made   *saved
	opened *opened // what was found in it, until it has been compared with all of the history
	done   func(*saved, error)
}

func newSaver(c *cluster, seed uint64) *saver {
	return &saver{c: c, rng: rand.New(rand.NewPCG(seed, 0xbac1))}
}

func (v *saver) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(v.rng.Int64N(int64(hi-lo)+1))
}

// think plans the next backup.
func (v *saver) think() {
	v.c.loop.after(v.between(10*time.Millisecond, 300*time.Millisecond), "saver", 0, 0, func() {
		if !v.c.quiet {
			limit := requestTicks * tickInterval
			if v.rng.IntN(3) == 0 { // its leader is away for that long
				limit = v.between(0, 100*time.Millisecond)
			}
			v.ask(v.c.servers[v.rng.IntN(len(v.c.servers))], limit, func(*saved, error) { v.think() })
		}
	})
}

// ask has a server take a backup, and checks it.
func (v *saver) ask(s *server, limit time.Duration, done func(*saved, error)) {
	c := v.c
	a := &order{n: c.stats.Backups, at: c.loop.now, floor: c.floor, done: done}
	if c.keeper != nil && c.survivor == nil { // else a revoke may be lost
		a.may, a.mayNot = c.keeper.terms()
	}
	for _, o := range c.history {
		if r, is := o.req.(*pb.LeaseGrantRequest); is && o.state == ok {
			a.leases = append(a.leases, r.ID)
		}
	}
	v.now = a
	c.loop.printf("server %d is asked for a backup; clients were shown revision %d", s.id, a.floor)
	c.loop.after(v.between(50*time.Microsecond, time.Millisecond), "ask for a backup", s.id, 0, func() {
		if s.life == nil || s.life.core.joining() {
			v.finish(a, nil, errDown)
			return
		}
		a.life = s.life
		a.life.now("backup", 0, func() {
			a.life.backup(limit, func(b *saved, err error) {
				c.loop.after(v.between(50*time.Microsecond, time.Millisecond), "backup", s.id, 0, func() {
					if !a.life.ended {
						v.finish(a, b, err)
					}
				})
			})
		})
	})
	c.loop.after(clientTimeout, "backup's timeout", s.id, 0, func() { v.finish(a, nil, errClientTimeout) })
}

// setApart is for how long a server waits until its partitions are apart, once they have what was acknowledged. Then a group gets
// stuck: else they are apart only for moments, as there are few clients.
func (v *saver) setApart(c *core) time.Duration {
	if v.rng.IntN(2) == 0 {
		return 0
	}
	p := v.rng.IntN(len(c.stuck))
	c.stuck[p] = max(c.stuck[p], v.c.loop.now+v.between(5*time.Millisecond, 60*time.Millisecond))
	return 50 * time.Millisecond
}

// lost ends a request to a process that has ended.
func (v *saver) lost(l *life) {
	if a := v.now; a != nil && a.life == l {
		v.c.loop.after(v.between(0, 10*time.Millisecond), "connection lost", l.sv.id, 0, func() { v.finish(a, nil, errLost) })
	}
}

func (v *saver) finish(a *order, b *saved, err error) {
	if v.now != a {
		return
	}
	v.now = nil
	c := v.c
	if err == nil {
		a.made = b
		c.stats.Backups++
		if b.stale {
			c.stats.Stale++
		}
		v.all = append(v.all, a)
		v.check(a)
	}
	c.loop.printf("the backup: %v", err)
	a.done(b, err)
}

// calm: soon after everything has healed, each server gives a backup of the present state.
func (v *saver) calm() {
	c := v.c
	for _, s := range c.alive() {
		var last error
		good := false
		ask := func() {
			v.ask(s, requestTicks*tickInterval, func(b *saved, err error) { last, good = err, good || err == nil && !b.stale })
		}
		v.now = nil
		done := c.waitFor(calmAfter, func() bool {
			if !good && v.now == nil {
				ask()
			}
			return good || s.lost
		})
		if !done {
			c.fail("liveness", "%v after everything has healed, server %d gives no backup of its state: %v", calmAfter, s.id, last)
			return
		}
	}
}

// terms are the user who has rights, and the last who has had them; nil: there is none.
func (k *keeper) terms() (may, mayNot *term) {
	if k.now == nil {
		return nil, nil
	}
	if k.now.revoked != 0 {
		return nil, k.now
	}
	if k.now.asked != 0 {
		return nil, nil
	}
	return k.now, nil
}

// mayRead reports whether a user of a state of users may read everything.
func (t *term) mayRead(s *auth.State) bool {
	u, err := s.Authorize(t.credential)
	return err == nil && u.MayRead([]byte{0}, []byte{0}) == nil
}

func alarmsText(list []*pb.AlarmMember) string {
	var text []string
	for _, a := range list {
		text = append(text, fmt.Sprint(a.GetMemberID(), a.GetAlarm()))
	}
	slices.Sort(text)
	return strings.Join(text, ", ")
}
