package osc

// explained is the definition itself, for histories of a few operations: is
// there a sequence that is legal, keeps each client's order, and puts before an
// update all operations that were answered before it was sent? It knows no
// graph, and compares values.
func explained(ops []*Op) bool {
	s := search{ops: ops, done: make([]bool, len(ops)), now: map[place]string{}, revision: map[int]int64{}}
	return s.from(0)
}

type search struct {
	ops      []*Op
	done     []bool
	now      map[place]string // what each key holds
	revision map[int]int64    // the last of each cluster
}

func (s *search) from(placed int) bool {
	if placed == len(s.ops) {
		return true
	}
	for i, o := range s.ops {
		if s.done[i] || !s.mayComeNow(i) {
			continue
		}
		old := map[place]string{}
		last := s.revision[o.Cluster]
		if o.Update {
			s.revision[o.Cluster] = o.Revision
			for k, v := range o.Keys {
				p := place{o.Cluster, k}
				old[p] = s.now[p]
				s.now[p] = v.Value
			}
		}
		s.done[i] = true
		if s.from(placed + 1) {
			return true
		}
		s.done[i] = false
		s.revision[o.Cluster] = last
		for p, v := range old {
			s.now[p] = v
		}
	}
	return false
}

func (s *search) mayComeNow(i int) bool {
	o := s.ops[i]
	for j, other := range s.ops {
		if s.done[j] || j == i {
			continue
		}
		if j < i && other.Client == o.Client && !other.Failed {
			return false
		}
		if o.Update && !other.Failed && other.End < o.Start {
			return false
		}
	}
	if o.Update {
		return o.Revision > s.revision[o.Cluster]
	}
	for k, v := range o.Keys {
		if s.now[place{o.Cluster, k}] != v.Value {
			return false
		}
	}
	return true
}
