package compose

// algorithm is Algorithm 1 of the paper (§3.1), as a pure state machine: its
// inputs are requests, answers and failures, its output is the action for a
// request. Its caller keeps the requests that have to wait, in their order.
//
// Invariants:
//
//  1. Requests are outstanding to one target at a time: last.
//  2. If a request waits, all that arrive behind it wait.
//  3. A read that is the first request to another cluster is synced; one that
//     follows a switch is not, unless the update that led the switch has failed
//     (unled).
//
// Beyond the paper it knows that a leading request can fail, that the client may
// learn another cluster's state other than by a request (saw), and that a cluster
// can have two targets: itself, and a mirror of some of its keys. Between those
// requests wait as for a switch, so that their order is known, but no read has to
// be synced: both show states of one cluster.
type algorithm struct {
	// cluster is that of each target.
	cluster []int
	// last is lastService: the target of the latest request, -1 at first.
	last int
	// outstanding is numOutstanding: requests to last without an answer.
	outstanding int
	// waiting counts the requests that wait.
	waiting int
	// unled clusters, by target, have to be synced before the next local read, although no
	// switch asks for it.
	unled []bool

	reads, updates, switches, syncs, resyncs, waits int64
}

// action is the action for a request.
type action uint8

const (
	// wait until the requests to another cluster, and those that wait before,
	// are answered; then call retry.
	wait action = iota
	// send it: a read is local.
	send
	// sendSynced: the read, or a sync before it.
	sendSynced
	// sendLeading: the update, on which local reads after it rely.
	sendLeading
)

func (a action) String() string {
	return [...]string{"wait", "send", "sendSynced", "sendLeading"}[a]
}

// kind is the kind of a request as far as the order is concerned.
type kind uint8

const (
	read kind = iota
	update
	// syncedRead is a read that is always synced.
	syncedRead
)

func newAlgorithm(cluster []int) *algorithm {
	return &algorithm{cluster: cluster, last: -1, unled: make([]bool, len(cluster))}
}

// arrive is onUpdate and onRead: a request comes, behind all that came before.
func (a *algorithm) arrive(target int, k kind) action {
	act := wait
	if a.waiting == 0 {
		act = a.admit(target, k)
	}
	if act == wait {
		a.hold()
	}
	return act
}

// retry decides again on the first waiting request.
func (a *algorithm) retry(target int, k kind) action {
	act := a.admit(target, k)
	if act != wait {
		a.waiting--
	}
	return act
}

// hold makes a request wait for a reason that is not the order's: its cluster has no
// connection yet.
func (a *algorithm) hold() {
	a.waiting++
	a.waits++
}

// withdrawn: a request that was to be sent could not be.
func (a *algorithm) withdrawn(target int) {
	a.outstanding--
	a.failed(target)
}

// dropped: the first of the requests that wait will not be sent.
func (a *algorithm) dropped() { a.waiting-- }

// admit is lines 4 to 9 and 11 to 19.
func (a *algorithm) admit(target int, k kind) action {
	of := a.cluster[target]
	switched := a.last < 0 || of != a.cluster[a.last]
	if target != a.last {
		if a.outstanding > 0 {
			return wait
		}
		a.last = target
	}
	if switched {
		a.switches++
	}
	a.outstanding++
	if k == update {
		a.updates++
		if switched || a.unled[of] {
			a.unled[of] = false
			return sendLeading
		}
		return send
	}
	a.reads++
	switch {
	case switched || k == syncedRead:
		a.syncs++
	case a.unled[of]:
		a.resyncs++
	default:
		return send
	}
	a.unled[of] = false
	return sendSynced
}

// leads reports whether a request would lead if it were admitted.
func (a *algorithm) leads(target int, k kind) bool {
	of := a.cluster[target]
	return a.last < 0 || of != a.cluster[a.last] || a.unled[of] || k == syncedRead
}

// responded is onResponse, for n answers at once.
func (a *algorithm) responded(n int) { a.outstanding -= n }

// failed: a request to a cluster got an error. If it led, the cluster is unled.
func (a *algorithm) failed(target int) { a.unled[a.cluster[target]] = true }

// saw: the client has seen a state of a cluster other than by an answer. Its
// next read of another cluster must not be older.
func (a *algorithm) saw(target int) {
	if a.last >= 0 && a.cluster[a.last] != a.cluster[target] {
		a.unled[a.cluster[a.last]] = true
	}
}
