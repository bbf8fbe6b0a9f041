package replica

import (
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
)

// Replicas compare their states while they run. The server that stamps proposes a check now and
// then, a rendezvous of all groups. Each server that executes it tells the one that stamps what it
// has found; that one proposes the verdict, by which each judges itself (package check, and
// apply/check.go). DESIGN.md, "Checks and fences".

// checks is what a replica has to do with that beside executing it.
type checks struct {
	mu     sync.Mutex
	rounds check.Rounds
	last   int64 // the tick of the last check that was proposed here
	wanted bool  // a server asks for one soon
	split  bool  // the alarm for the whole cluster is due
	// refused counts the servers that didn't give this one their state.
	refused atomic.Uint32
	stuck   bool        // the log says why this server stays fenced
	made    atomic.Bool // a check has been executed since the state was loaded
	agreed  atomic.Bool // a verdict has agreed since then
}

// patience is how many checks may follow one whose verdict is still awaited.
const patience = 2

// tick proposes the next check, on the server that stamps; the others ask for their first. One that is
// asked for is made even if there are no others: a fenced server waits for it.
func (c *checks) tick(r *Replica, now int64) {
	if !r.cfg.Machine.Checks() {
		return
	}
	every := r.cfg.CheckTicks
	if len(r.Peers()) == 0 {
		every = 0 // there is nobody to differ from
	}
	if c.lacks(r, every) && now%int64(r.cfg.ElectionTicks) == 0 {
		r.wantCheck()
	}
	if !r.seq.IsOpen() {
		return
	}
	c.mu.Lock()
	passed := now - c.last
	due := every > 0 && (c.last == 0 || passed >= every) || c.wanted && passed >= int64(r.cfg.ElectionTicks)
	if due {
		c.last, c.wanted = now, false
		if d, at := c.rounds.Expire(patience); d == check.Split {
			r.cfg.Logger.Error("members differ, and no majority of them has agreed in time", zap.Stringer("check", at))
			c.split = true
		}
	}
	split := c.split
	c.split = false
	c.mu.Unlock()
	if due {
		r.propose(command.Command{Kind: command.Check, Body: check.AppendVersion(nil)})
	}
	if split {
		r.raise(0, func(Outcome) {})
	}
}

// lacks reports whether the state that this server has loaded, or taken in, has still to be compared.
func (c *checks) lacks(r *Replica, every int64) bool {
	return every > 0 && !c.made.Load() || r.cfg.InitialCheck && !c.agreed.Load() && len(r.Peers()) > 0
}

// Agreed reports whether a check has agreed with this server's state since it was loaded.
func (r *Replica) Agreed() bool { return r.checks.agreed.Load() }

// propose submits a command of this server's own; whatever comes of it, it is proposed again when it
// is due again.
func (r *Replica) propose(c command.Command) { r.proposeThen(c, func(Outcome) {}) }

func (r *Replica) proposeThen(c command.Command, done func(Outcome)) {
	if r.cfg.Machine.Auth().Enabled {
		c.User = auth.Own
	}
	r.Submit(&Write{Command: c, Parts: r.all(), System: true, Done: done})
}

// raise raises the alarm CORRUPT for a member, or for the cluster: 0.
func (r *Replica) raise(member uint64, done func(Outcome)) {
	body, err := proto.Marshal(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT, MemberID: member})
	if err != nil {
		r.cfg.Fatal(err)
		return
	}
	r.proposeThen(command.Command{Kind: command.Alarm, Body: body}, done)
}

// report tells the server that stamps what this one has found at a check.
func (r *Replica) report(it *item) {
	if !it.entry.Checks() || it.entry.Commands[0].Kind != command.Check {
		return
	}
	r.checks.made.Store(true)
	digest, at, voters := r.cfg.Machine.Found()
	if len(voters) == 0 || !r.cfg.Machine.Fence.Reports() {
		return
	}
	own := check.Report{Member: r.cfg.ID, Version: check.Version, Place: at, Digest: digest}
	r.checks.mu.Lock()
	decision, verdict := r.checks.rounds.Executed(own, voters)
	r.checks.mu.Unlock()
	// If it comes to stamp before the report is on its way, the round has it.
	r.CallLeader(methodReport, own.AppendTo(nil), func() {}, unheard)
	r.decided(decision, verdict, at)
}

// wantCheck asks for a check soon.
func (r *Replica) wantCheck() {
	want := func() {
		r.checks.mu.Lock()
		r.checks.wanted = true
		r.checks.mu.Unlock()
	}
	r.CallLeader(methodReport, nil, want, unheard)
}

// reported takes another server's report, or its wish of a check.
func (r *Replica) reported(body []byte, reply func([]byte, error)) {
	if len(body) == 0 {
		r.wantCheck()
		reply(nil, nil)
		return
	}
	of, err := check.DecodeReport(body)
	if err == nil {
		r.checks.mu.Lock()
		decision, verdict := r.checks.rounds.Told(of)
		r.checks.mu.Unlock()
		r.decided(decision, verdict, of.Place)
	}
	reply(nil, nil) // one of another version isn't compared
}

// decided proposes what the reports of a check lead to.
func (r *Replica) decided(d check.Decision, v check.Verdict, at check.Place) {
	if !r.seq.IsOpen() {
		return
	}
	switch d {
	case check.Decided:
		r.propose(command.Command{Kind: command.Verdict, Body: v.AppendTo(nil)})
	case check.Split:
		r.cfg.Logger.Error("members differ, and no majority of them agrees: writes are refused until an operator has compared them and disarmed the alarm",
			zap.Stringer("check", at))
		r.raise(0, func(Outcome) {})
	}
}
