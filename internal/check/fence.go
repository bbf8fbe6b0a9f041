package check

import "sync/atomic"

// Fence is whether a server may answer. It outlives the state: what a fenced server takes in
// from another is judged before it answers again. Only the one that executes the log changes it,
// under the locks of all partitions, or while nothing is executed; any goroutine may read it.
type Fence struct {
	now   atomic.Pointer[Fenced]
	times atomic.Uint64
	// untold: the alarm for the server has not been seen in the state since it was fenced. It is raised, and seen,
	// beside the log.
	untold atomic.Bool
}

// Fenced is why a server answers nothing. It is never changed.
type Fenced struct {
	By Verdict // from which the server differed; zero if that isn't known any more, or there is none
	// Damaged: the server has found by itself that its state is wrong.
	Damaged bool
	// Healed: the server has another's state since, which has not been judged yet.
	Healed bool
}

// Differed reports whether a verdict, or the server itself, has found its state wrong: else an operator has
// fenced it, or it isn't fenced.
func (f *Fenced) Differed() bool { return f != nil && (f.Damaged || f.By.Version != 0) }

// Now returns nil if the server may answer.
func (f *Fence) Now() *Fenced { return f.now.Load() }

// Times is how often the server has been fenced: what was begun with its state must not be finished
// if that has changed meanwhile, though the server may serve again.
func (f *Fence) Times() uint64 { return f.times.Load() }

// Reports tells whether the server's digests count. One that has not got another state since it
// was fenced is known to differ: if it reported, two servers of which one is sound, the third
// being away, would be taken for two that both may be wrong.
func (f *Fence) Reports() bool {
	now := f.Now()
	return now == nil || now.Healed
}

// Judge follows a judgement, and reports whether the server was fenced by it, or may answer
// again. A fenced server that agrees before it has another state stays fenced: its digest may be
// right again by chance, since what differed has been deleted, and its history is not.
func (f *Fence) Judge(j Judgement, v Verdict) (changed bool) {
	now := f.Now()
	switch {
	case j == Differs && f.Reports():
		f.fence(&Fenced{By: v})
		return now == nil
	case j == Agrees && now != nil && now.Healed:
		f.now.Store(nil)
		return true
	}
	return false
}

// Alone notes that an operator has made the server a cluster of its own (--force-new-cluster), and reports whether it may
// answer again. A verdict of the cluster that it was in says nothing any more: the others are lost, perhaps with
// what this one lacked, and what it has is the state. One that has found damage in it stays fenced, or that an operator has fenced.
func (f *Fence) Alone() (changed bool) {
	if now := f.Now(); now == nil || now.Damaged || now.By.Version == 0 {
		return false
	}
	f.now.Store(nil)
	return true
}

// Damaged fences a server that has found damage in its own state, and reports whether that is news.
// No verdict says who is right, so any other server may send its state.
func (f *Fence) Damaged() (changed bool) {
	if !f.Reports() {
		return false
	}
	f.fence(&Fenced{Damaged: true})
	return true
}

func (f *Fence) fence(why *Fenced) {
	f.times.Add(1)
	f.now.Store(why)
	if why.Differed() {
		f.untold.Store(true)
	}
}

// Untold reports whether operators have still to be told that the server was fenced, also if it is not any more.
func (f *Fence) Untold() bool { return f.untold.Load() }

// Told notes that the alarm is in the state, and reports whether that is news.
func (f *Fence) Told() (changed bool) { return f.untold.Swap(false) }

// Restore fences a server that was fenced when it stopped.
func (f *Fence) Restore(by Verdict) {
	f.fence(&Fenced{By: by})
}

// RestoreUntold notes that operators had still to be told when the server stopped.
func (f *Fence) RestoreUntold() { f.untold.Store(true) }

// Installed notes that the server has another's state.
func (f *Fence) Installed() {
	if now := f.Now(); now != nil {
		f.now.Store(&Fenced{By: now.By, Damaged: now.Damaged, Healed: true})
	}
}
