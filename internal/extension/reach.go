package extension

import "slices"

// Beyond these an extension's reach isn't followed any further: it is then taken to be
// everything. They bound the time of computing it.
const (
	maxReach      = 64     // extensions
	maxReachSteps = 10_000 // patterns that are looked at
)

// Reach is the set of possible consequences of a call's changes.
type Reach struct {
	Extensions []*Extension // whose handlers may run, that of the call first
	Scope      []Pattern    // in which they may write
	// Whole says that there are more of them; the others are left out.
	Whole bool
}

// Reach follows a call of e: the changes in its scope, those of the handlers of events
// that they set off, and so on.
func (r *Registry) Reach(e *Extension) Reach {
	reach := Reach{Extensions: []*Extension{e}}
	seen := map[Pattern]bool{}
	steps := 0
	for i := 0; i < len(reach.Extensions); i++ {
		for _, p := range reach.Extensions[i].Scope {
			if seen[p] {
				continue
			}
			seen[p] = true
			reach.Scope = append(reach.Scope, p)
			key, end := p.Bounds()
			for f := range r.EventsIn(key, end) {
				if steps++; slices.Contains(reach.Extensions, f) && steps < maxReachSteps {
					continue
				}
				if len(reach.Extensions) == maxReach || steps >= maxReachSteps {
					reach.Whole = true
					return reach
				}
				reach.Extensions = append(reach.Extensions, f)
			}
		}
	}
	return reach
}
