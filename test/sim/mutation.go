package sim

import "github.com/stoa-kv/stoa/internal/replica"

// Mutation is a seeded bug: one safety rule that is switched off, to show that
// the checks notice.
type Mutation struct {
	Name    string
	Seed    uint64 // known to fail; a change of the code may move it
	Replica replica.Mutations
	// FlushApart flushes the partitions at different cuts.
	FlushApart bool
	// ForgetTail loses the last records of the log at each start.
	ForgetTail bool
	// ReleaseEarly shortens the log before the file has what it held.
	ReleaseEarly bool
	// ForgetExtensions begins each life without the extensions.
	ForgetExtensions bool
	// CallTwice sends a call again of which nobody knows whether it was carried out.
	CallTwice bool
	// ReadAsPlanned answers a read from the keys although an extension handles it, of
	// which the server has just learned.
	ReadAsPlanned bool
	// KeepHub doesn't tell the watch hub that a snapshot has replaced the stores.
	KeepHub bool
	// KeepGroups doesn't tell the watch hub that keys have moved.
	KeepGroups bool
	// WithoutHome lets a session's writes to several partitions be under way, each in its own log alone.
	WithoutHome bool
	// WithoutPred sends a session's writes without their predecessors.
	WithoutPred bool
	// WithoutNumbers sends a session's writes as anybody's.
	WithoutNumbers bool
	// CausalWithoutWait reads whatever the server has.
	CausalWithoutWait bool
	// ReadAhead answers causal reads before the writes in front of them.
	ReadAhead bool
	// ReadOvertaken answers a read that is sent again though later writes of its session
	// have taken effect.
	ReadOvertaken bool
	// ReplyBeforeEvents lets a session's replies leave before the events that they reflect.
	ReplyBeforeEvents bool
	// MergeWithoutWait hands a session's events over as they come from each watch.
	MergeWithoutWait bool
	// ForgetSessions begins each life without the results of sessions.
	ForgetSessions bool
	// ForgetMap loads the stores as if keys had never moved.
	ForgetMap bool
}

// Mutations are all that must be noticed.
func Mutations() []Mutation {
	type rules = replica.Mutations
	return []Mutation{
		{Name: "stamp-without-barrier", Seed: 1, Replica: rules{StampWithoutBarrier: true}},
		{Name: "stamp-apart", Seed: 1, Replica: rules{StampApart: true}},
		{Name: "close-by-counter", Seed: 7, Replica: rules{CloseByCounter: true}},
		{Name: "read-without-wait", Seed: 8, Replica: rules{ReadWithoutWait: true}},
		{Name: "read-without-confirm", Seed: 5, Replica: rules{ReadWithoutConfirm: true}},
		{Name: "skip-recovery", Seed: 1, Replica: rules{SkipRecovery: true}},
		{Name: "ack-before-sync", Seed: 2, Replica: rules{AckBeforeSync: true}},
		{Name: "meet-alone", Seed: 1, Replica: rules{MeetAlone: true}},
		{Name: "reuse-stamps", Seed: 1, Replica: rules{ReuseStamps: true}},
		{Name: "flush-apart", Seed: 7, FlushApart: true},
		{Name: "forget-tail", Seed: 3, ForgetTail: true},
		{Name: "release-early", Seed: 32, ReleaseEarly: true},
		{Name: "keep-hub", Seed: 1, KeepHub: true},
		{Name: "keep-groups", Seed: 1, KeepGroups: true},
		{Name: "forget-map", Seed: 1, ForgetMap: true},
		{Name: "forget-extensions", Seed: 3, ForgetExtensions: true},
		{Name: "call-twice", Seed: 15, CallTwice: true},
		{Name: "read-as-planned", Seed: 42, ReadAsPlanned: true},
		{Name: "without-home", Seed: 4, WithoutHome: true},
		{Name: "without-pred", Seed: 40, WithoutPred: true},
		{Name: "without-numbers", Seed: 4, WithoutNumbers: true},
		{Name: "causal-without-wait", Seed: 12, CausalWithoutWait: true},
		{Name: "read-ahead", Seed: 4, ReadAhead: true},
		{Name: "read-overtaken", Seed: 20, ReadOvertaken: true},
		{Name: "reply-before-events", Seed: 4, ReplyBeforeEvents: true},
		{Name: "merge-without-wait", Seed: 4, MergeWithoutWait: true},
		{Name: "forget-sessions", Seed: 20, ForgetSessions: true},
		{Name: "reuse-numbers", Seed: 11, Replica: rules{ReuseNumbers: true}},
	}
}
