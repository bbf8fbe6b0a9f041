package elle

import (
	"fmt"
	"slices"
)

// Anomaly is a reason why a history is not strictly serializable.
type Anomaly struct {
	Kind string // G0, G1a, G1b, G1c, G-single, G2, internal, incompatible-order, lost, ...
	Why  string
}

func (a *Anomaly) Error() string { return a.Kind + ": " + a.Why }

func anomaly(kind, format string, args ...any) error {
	return &Anomaly{Kind: kind, Why: fmt.Sprintf(format, args...)}
}

// Check returns the first anomaly that it finds. final is every list as it was read when all
// transactions had ended.
func Check(txns []*Txn, final map[string][]int) error {
	v, err := trace(txns, final)
	if err != nil {
		return err
	}
	for _, t := range txns {
		if err := v.explain(t); err != nil {
			return err
		}
	}
	g := v.graph(txns)
	if c := g.cycle(); c != nil {
		return g.classify(c)
	}
	return nil
}

// element is one value of one list.
type element struct {
	key   string
	value int
}

// versions is what a history tells of its lists.
type versions struct {
	final map[string][]int
	by    map[element]*Txn // who appended it
	place map[element]int  // where in the final list, from 0
	last  map[element]bool // it is the last that its transaction appended to this list
}

// trace finds who appended each element of the final lists.
func trace(txns []*Txn, final map[string][]int) (*versions, error) {
	v := &versions{final: final, by: map[element]*Txn{}, place: map[element]int{}, last: map[element]bool{}}
	for _, t := range txns {
		latest := map[string]int{}
		for _, s := range t.Steps {
			if s.Append == 0 {
				continue
			}
			e := element{s.Key, s.Append}
			if other := v.by[e]; other != nil {
				return nil, fmt.Errorf("a history in which %v and %v append the same", other, t)
			}
			v.by[e] = t
			latest[s.Key] = s.Append
		}
		for key, value := range latest {
			v.last[element{key, value}] = true
		}
	}
	for key, list := range final {
		for i, value := range list {
			e := element{key, value}
			switch t := v.by[e]; {
			case t == nil:
				return nil, anomaly("garbage", "%s has %d at last, which nobody appended", key, value)
			case t.Outcome == Failed:
				return nil, anomaly("G1a", "%s has %d at last, of %v", key, value, t)
			}
			if at, twice := v.place[e]; twice {
				return nil, anomaly("duplicate", "%s has %d at %d and at %d", key, value, at, i)
			}
			v.place[e] = i
		}
	}
	return v, nil
}

// happened reports whether a transaction took effect, as far as its appends tell.
func (v *versions) happened(t *Txn) bool {
	if t.Outcome != Unknown {
		return t.Outcome == OK
	}
	for _, s := range t.Steps {
		if _, ok := v.place[element{s.Key, s.Append}]; ok && s.Append != 0 {
			return true
		}
	}
	return false
}

// explain checks one transaction against the final lists, and its reads against its appends.
func (v *versions) explain(t *Txn) error {
	if !v.happened(t) {
		return nil
	}
	own := map[string][]int{}
	for _, s := range t.Steps {
		if s.Append != 0 {
			if _, ok := v.place[element{s.Key, s.Append}]; !ok {
				return anomaly("lost", "%d is not in %s %v: %v", s.Append, s.Key, v.final[s.Key], t)
			}
			own[s.Key] = append(own[s.Key], s.Append)
			continue
		}
		if t.Outcome != OK {
			continue // it doesn't know what it read
		}
		if err := v.explainRead(t, s, own[s.Key]); err != nil {
			return err
		}
	}
	return v.together(t, own)
}

// explainRead checks that a list is a beginning of the final one, that ends with the end of what
// another transaction appended, or with all that this one appended until then.
func (v *versions) explainRead(t *Txn, s Step, own []int) error {
	list := v.final[s.Key]
	if len(s.Read) > len(list) || !slices.Equal(s.Read, list[:len(s.Read)]) {
		return anomaly("incompatible-order", "%s is %v at last, not what %v read", s.Key, list, t)
	}
	others := s.Read
	if len(own) > 0 {
		if len(s.Read) < len(own) || !slices.Equal(s.Read[len(s.Read)-len(own):], own) {
			return anomaly("internal", "%s doesn't end with what %v appended before", s.Key, t)
		}
		others = s.Read[:len(s.Read)-len(own)]
	}
	if n := len(others); n > 0 && !v.last[element{s.Key, others[n-1]}] {
		return anomaly("G1b", "%v read %s in the midst of %v", t, s.Key, v.by[element{s.Key, others[n-1]}])
	}
	return nil
}

// together checks that what a transaction appended to a list stands there without another's in
// between, in its order.
func (v *versions) together(t *Txn, own map[string][]int) error {
	for key, values := range own {
		for i := 1; i < len(values); i++ {
			if v.place[element{key, values[i]}] != v.place[element{key, values[i-1]}]+1 {
				return anomaly("G0", "%s is %v at last, which tears %v apart", key, v.final[key], t)
			}
		}
	}
	return nil
}
