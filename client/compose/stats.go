package compose

// Stats are a client's counters since it was made.
type Stats struct {
	// Reads and Updates that callers asked for and that were sent.
	Reads, Updates int64
	// Switches to another cluster than that of the request before; the first
	// request of all is one.
	Switches int64
	// Syncs are reads that were synced because they were the first after a
	// switch, or because of Sync or Synced.
	Syncs int64
	// Resyncs are syncs for other reasons: a failure before, or an event that was
	// delivered of another cluster.
	Resyncs int64
	// Stale counts local answers that would have gone back, and were read again.
	Stale int64
	// Mirrored counts reads that a mirror has answered.
	Mirrored int64
	// MirroredEvents counts events that were watched at a mirror.
	MirroredEvents int64
	// Waits counts requests that waited until another cluster had answered.
	Waits int64
	// Failures counts requests that failed because a cluster did not answer.
	Failures int64
}
