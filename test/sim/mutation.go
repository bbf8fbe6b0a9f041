package sim

// Mutation is a seeded bug: one safety rule that is switched off, to show that
// the checks notice. Those that have no field here are in the code that servers run,
// and in a build with the overlay of package mutate alone.
type Mutation struct {
	Name string
	Seed uint64 // known to fail; a change of the code may move it
	// Members looks for it in runs in which the members change.
	Members bool
	// Force looks for it in runs at whose end one server is made a cluster of its own.
	Force bool
	// Users looks for it in runs in which clients are users.
	Users bool
	// Balance looks for it in runs in which slots move at random.
	Balance bool
	// Resize looks for it in runs in which the number of partitions changes.
	Resize bool
	// Checks looks for it in runs in which servers compare their states, and one has another.
	Checks bool
	// Swarm looks for it in runs that have only some of all.
	Swarm bool
	// RightsAtArrival lets writes take effect with the rights of the moment at which they
	// came in.
	RightsAtArrival bool
	// RightsBeforeRead looks at the rights of a read before it waits for its state.
	RightsBeforeRead bool
	// RightsAtOpening lets a session do what its user could do when it was opened.
	RightsAtOpening bool
	// KeepWatches doesn't tell the watch hub that rights have changed.
	KeepWatches bool
	// FlushApart flushes the partitions at different cuts.
	FlushApart bool
	// ForgetTail loses the last records of the log at each start.
	ForgetTail bool
	// ReleaseEarly shortens the log before the file has what it held.
	ReleaseEarly bool
	// ForgetExtensions begins each life without the extensions.
	ForgetExtensions bool
	// CallTwice sends a call again although it may have been carried out.
	CallTwice bool
	// ReadAsPlanned answers a read from the keys although an extension handles it, of
	// which the server has just learned.
	ReadAsPlanned bool
	// KeepHub doesn't tell the watch hub that a snapshot has replaced the stores.
	KeepHub bool
	// KeepGroups doesn't tell the watch hub that keys have moved.
	KeepGroups bool
	// ForgetSessions begins each life without the results of sessions.
	ForgetSessions bool
	// LoseCalls fails the calls in flight at the leader when a snapshot is
	// installed.
	LoseCalls bool
	// ForgetMap loads the stores as if keys had never moved.
	ForgetMap bool
	// ForgetCursor loads the stores as if those that were moving had all arrived.
	ForgetCursor bool
	// StaleSlots loads the stores as if slots had never moved, only rules had.
	StaleSlots bool
	// ForgetVersion begins each life at the oldest version of the cluster; see TestVersions.
	ForgetVersion bool
	// NarrowWatches tells the watch hub where keys are when they begin to move, but not
	// where they go.
	NarrowWatches bool
	// SaveAtOnce takes a backup of what a server has, though it may be behind what was acknowledged.
	SaveAtOnce bool
	// ForgetFence begins each life as if the one before hadn't been fenced.
	ForgetFence bool
}

// Mutations are those of the simulation's own servers.
func Mutations() []Mutation {
	return []Mutation{
		{Name: "rights-at-arrival", Seed: 23, Users: true, RightsAtArrival: true},
		{Name: "rights-before-read", Seed: 92, Users: true, RightsBeforeRead: true},
		{Name: "rights-at-opening", Seed: 4, Users: true, RightsAtOpening: true},
		{Name: "keep-watches", Seed: 1, Users: true, KeepWatches: true},
		{Name: "flush-apart", Seed: 7, FlushApart: true},
		{Name: "forget-tail", Seed: 3, ForgetTail: true},
		{Name: "release-early", Seed: 10, ReleaseEarly: true},
		{Name: "lose-calls", Seed: 1, LoseCalls: true},
		{Name: "keep-hub", Seed: 3, KeepHub: true},
		{Name: "keep-groups", Seed: 1, KeepGroups: true},
		{Name: "forget-map", Seed: 1, ForgetMap: true},
		{Name: "forget-cursor", Seed: 3, ForgetCursor: true},
		{Name: "stale-slots", Seed: 1, Balance: true, StaleSlots: true},
		{Name: "narrow-watches", Seed: 4, NarrowWatches: true},
		{Name: "forget-extensions", Seed: 3, ForgetExtensions: true},
		{Name: "call-twice", Seed: 18, CallTwice: true},
		{Name: "read-as-planned", Seed: 42, ReadAsPlanned: true},
		{Name: "forget-sessions", Seed: 20, ForgetSessions: true},
		{Name: "save-at-once", Seed: 2, Swarm: true, SaveAtOnce: true},
		{Name: "forget-fence", Seed: 17, Checks: true, ForgetFence: true},
	}
}
