package store

// Window is how many entries of a partition's log are compared at once between servers that run:
// by what they have changed in the checksums of its keys.
const Window = 64

// keptWindows are those that a server still knows.
const keptWindows = 64

// Windows has, of the last windows of the log that were applied here, what each has changed. Only
// differences count: a store's sums begin with what it was loaded with, which isn't the same
// everywhere (Sums). A window in which the store was loaded is left out.
type Windows struct {
	end   uint64 // the index of the last entry of the newest; 0: there is none
	sum   uint64 // of the store, there
	known int    // that end there
	diffs [keptWindows]uint64
}

// WindowSum is what a window has changed.
type WindowSum struct {
	End  uint64 // the index of its last entry
	Diff uint64
}

// reach notes the sum of the store at the end of a window.
func (w *Windows) reach(index, sum uint64) {
	if w.end != 0 && index == w.end+Window {
		w.diffs[index/Window%keptWindows] = sum - w.sum
		w.known = min(w.known+1, keptWindows)
	} else {
		w.known = 0
	}
	w.end, w.sum = index, sum
}

// Since returns the windows behind the one that ends at an index, in their order.
func (w *Windows) Since(end uint64) (list []WindowSum) {
	for n := w.known - 1; n >= 0; n-- {
		if at := w.end - uint64(n)*Window; at > end {
			list = append(list, WindowSum{at, w.diffs[at/Window%keptWindows]})
		}
	}
	return list
}

// Compare compares a window with that of another server. It isn't reached if this one has yet to apply
// what is in it. What isn't known any more is the same.
func (w *Windows) Compare(c WindowSum) (same, reached bool) {
	switch {
	case c.End > w.end:
		return true, false
	case c.End%Window != 0 || w.end-c.End >= uint64(w.known)*Window:
		return true, true
	}
	return w.diffs[c.End/Window%keptWindows] == c.Diff, true
}

// Windows returns the store's.
func (s *Store) Windows() *Windows { return &s.windows }
