package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// features are what there is in a run.
type features struct {
	members, versions, users, balance, resize, checks, extensions, sessions bool

	large  bool // some values are as large as segments of a log
	alarms bool // NOSPACE is raised and lowered
	calls  bool // sessions have a name that extensions know
	waits  bool // clients wait for what an extension gives them
	looks  bool // sessions of users watch, too
	hides  bool // an extension hides changes of a key from its clients
	steps  bool // leases end in several steps, as event handlers may not do much
	ends   bool // watches are canceled, and streams go on
	urls   bool // members get other URLs
	few    bool // there are users with few rights
	far    bool // entries go when a segment has been logged since, whichever partition's
	space  bool // extensions may lack space: quotas are for their keys, too, and NOSPACE may be raised
	reacts bool // and they register an extension that handles events
	leaves bool // and they are deleted, come again as others under their names, and get other passwords
	looked bool // clients ask for the times and keys of leases (lessee.go)
	again  bool // a cluster that has grown from a server that was forced may be lost in the same way

	backups bool // clients take backups
	files   bool // servers have real files, which are defragmented

	troubles []trouble
	requests []weighted

	extremes []func(*plan) // what is far from usual
}

// features are those that the options ask for, and those that the seed decides for.
func (o *Options) features() features {
	if o.Swarm {
		return o.swarm()
	}
	return features{
		members:    o.Members || o.Seed%10 == 6 || o.Seed%10 == 9,
		versions:   o.Versions,
		users:      o.Users || o.Seed%11 == 10 && o.script == nil,
		balance:    o.Balance || o.Versions || o.Seed%4 == 1 && o.script == nil,
		resize:     o.Resize || o.Seed%8 == 3 && !o.Force && o.script == nil,
		checks:     o.Checks || o.Seed%17 == 14 && !o.Force && o.script == nil,
		extensions: o.Seed%3 == 0,
		sessions:   o.Seed%4 == 0 || o.Users && o.Seed%4 == 2,
		files:      o.Files,
		troubles:   troubles,
		requests:   workload,
	}
}

// swarm has each feature, each trouble and each kind of request in about every other run, whatever else is in it (Groce
// et al., Swarm Testing, ISSTA 2012). With all of them in each run, those that undo what
// others do, or take their place, keep runs from where many of one kind lead.
func (o *Options) swarm() features {
	rng := rand.New(rand.NewPCG(o.Seed, 0x5a12))
	some := func() bool { return rng.IntN(2) == 0 }
	f := features{
		members:    some() || o.Members,
		versions:   some() || o.Versions,
		users:      some() || o.Users,
		balance:    some() || o.Balance,
		resize:     some() || o.Resize,
		checks:     some() || o.Checks,
		extensions: some(),
		sessions:   some(),
		large:      some(),
	}
	f.alarms = some() && !f.extensions
	f.calls, f.steps = some() && f.extensions, some() && f.extensions && !f.versions // some of which end a lease at once
	f.ends, f.urls, f.again = some(), some(), some()
	for len(f.troubles) == 0 {
		f.troubles = someOf(rng, slices.Concat(troubles, rarerTroubles))
	}
	for len(f.requests) == 0 {
		f.requests = someOf(rng, slices.Concat(workload, rarer))
	}
	for _, e := range extremes {
		if rng.IntN(6) == 0 {
			f.extremes = append(f.extremes, e)
		}
	}
	f.looks = some() && f.users && f.sessions
	f.waits, f.hides = some() && f.extensions, some() && f.extensions
	f.backups = rand.New(rand.NewPCG(o.Seed, 0xbac0)).IntN(2) == 0 // drawn apart, so that the other runs are what they were
	f.files = o.hasFiles()
	f.few = o.hasFew(&f)
	if space := rand.New(rand.NewPCG(o.Seed, 0x59ace)); f.extensions && !f.versions && space.IntN(2) == 0 {
		f.space, f.alarms = true, space.IntN(2) == 0
	}
	f.reacts = f.few && f.extensions && rand.New(rand.NewPCG(o.Seed, 0xe7e)).IntN(2) == 0
	f.leaves = f.few && rand.New(rand.NewPCG(o.Seed, 0x6)).IntN(3) == 0
	f.far = rand.New(rand.NewPCG(o.Seed, 0x727)).IntN(3) == 0
	leases := rand.New(rand.NewPCG(o.Seed, leaseStream))
	if f.looked = leases.IntN(2) == 0; f.looked && leases.IntN(2) == 0 {
		f.extremes = append(f.extremes, longTenure)
	}
	return f
}

// extremes are plans that few clusters have, and that others have at times.
var extremes = []func(*plan){
	func(p *plan) { p.delay, p.loseOneIn = 4*p.delay, max(p.loseOneIn, 1000) }, // each loss breaks the connection
	func(p *plan) { p.flush = 3 * time.Millisecond },
	func(p *plan) { p.flush = 3 * time.Second },
	func(p *plan) { p.flushing = 2 * time.Second },
	func(p *plan) { p.transfer = 2 * time.Second },
	func(p *plan) { p.segment = 512 },
	func(p *plan) { p.clients, p.think = 40, 10*time.Millisecond },
	func(p *plan) { p.clients, p.think = 2, 300*time.Millisecond },
	func(p *plan) { p.watchers = 12 },
	func(p *plan) { p.pause = 15 * time.Millisecond },
	func(p *plan) { p.trouble *= 3 },
	func(p *plan) { p.step = 300 * time.Millisecond },
	func(p *plan) { p.down = 4 * time.Second },
	func(p *plan) { p.down = 20 * time.Millisecond },
	func(p *plan) { p.partitions, p.lateOneIn = 16, 1000 },
}

// longTenure leaves leaders the time in which leases come to be checkpointed, which they never are before they are a second old.
func longTenure(p *plan) { p.pause, p.trouble = time.Second, 8*time.Second }

// someOf has each of all with a chance of one in two.
func someOf[T any](rng *rand.Rand, all []T) (some []T) {
	for _, t := range all {
		if rng.IntN(2) == 0 {
			some = append(some, t)
		}
	}
	return some
}

// weighed draws one of all, each as often as its weight says.
func weighed[T any](l *loop, all []T, weight func(T) int) T {
	sum := 0
	for _, t := range all {
		sum += weight(t)
	}
	n := l.rng.IntN(sum)
	for _, t := range all {
		if n -= weight(t); n < 0 {
			return t
		}
	}
	panic("unreachable")
}
