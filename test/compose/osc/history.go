package osc

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Op is one operation of one client on one cluster.
type Op struct {
	Client  int
	Cluster int
	Update  bool
	// Keys of an update, each with the value that was written, or of a read, with what
	// was found. Values are unique in the whole history. A read says of every key that
	// it asked for.
	Keys map[string]Version
	// Revision is that of an update; a read's is in Keys.
	Revision int64
	// Start is when it was sent, End when the answer came, on one clock for all.
	Start, End int64
	// Failed marks an operation without an answer that determines its outcome.
	Failed bool
	// Refused marks a failed update that, by its answer, did not take effect.
	Refused bool
}

// Version is what a key holds: nothing, if Mod is 0.
type Version struct {
	Value string
	Mod   int64 // the revision of the update that wrote it; not used in an update
}

// never is the end of an operation without a known end.
const never = math.MaxInt64

func (o *Op) String() string {
	what := "reads"
	if o.Update {
		what = "writes"
	}
	text := fmt.Sprintf("client %d %s in cluster %d", o.Client, what, o.Cluster)
	for _, k := range slices.Sorted(maps.Keys(o.Keys)) {
		switch v := o.Keys[k]; {
		case o.Update:
			text += fmt.Sprintf(" %s=%s", k, v.Value)
		case v.Mod == 0:
			text += fmt.Sprintf(" %s: nothing", k)
		default:
			text += fmt.Sprintf(" %s=%s of revision %d", k, v.Value, v.Mod)
		}
	}
	if o.Update {
		text += fmt.Sprintf(" at revision %d", o.Revision)
	}
	end := "never answered"
	if !o.Failed {
		end = moment(o.End)
	}
	return fmt.Sprintf("%s [%s – %s]", text, moment(o.Start), end)
}

func moment(t int64) string { return time.Duration(t).Round(time.Microsecond).String() }

// History is what clients did, each client's operations in the order in which it sent
// them. Clients may record at the same time.
type History struct {
	begun time.Time

	mu  sync.Mutex
	ops []*Op
}

// NewHistory begins a history; its clock begins now.
func NewHistory() *History { return &History{begun: time.Now()} }

// Now is the time on the history's clock.
func (h *History) Now() int64 { return int64(time.Since(h.begun)) }

// Begin records an operation that is sent now. End completes it.
func (h *History) Begin(o *Op) *Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Start, o.End, o.Failed = h.Now(), never, true
	h.ops = append(h.ops, o)
	return o
}

// End records an answer that has come now.
func (h *History) End(o *Op, fill func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fill()
	o.End, o.Failed = h.Now(), false
}

// Refuse records that an update didn't happen, and never will.
func (h *History) Refuse(o *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Refused = true
}

// Ops are all operations so far.
func (h *History) Ops() []*Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Told is a cluster's own history: by key and value, the revision that wrote it.
type Told map[string]map[string]int64

// Add files one change.
func (t Told) Add(key, value string, revision int64) {
	if t[key] == nil {
		t[key] = map[string]int64{}
	}
	t[key][value] = revision
}

// Resolve completes a history by each cluster's own. The remaining operations
// are those that took effect. An error says that a cluster and a client
// contradict each other: an acknowledged update that is not there, or at
// another revision, or in part, or one that is there and was refused.
func Resolve(ops []*Op, clusters []Told) ([]*Op, error) {
	var resolved []*Op
	for _, o := range ops {
		if !o.Update {
			if !o.Failed {
				resolved = append(resolved, o)
			}
			continue
		}
		found, missing := int64(0), 0
		for key, v := range o.Keys {
			switch rev := clusters[o.Cluster][key][v.Value]; {
			case rev == 0:
				missing++
			case found != 0 && found != rev:
				return nil, fmt.Errorf("HALF: %v: the cluster has it at revisions %d and %d", o, found, rev)
			default:
				found = rev
			}
		}
		switch {
		case found != 0 && missing > 0:
			return nil, fmt.Errorf("HALF: %v: the cluster lacks a part of it", o)
		case o.Failed && found == 0:
			continue
		case o.Refused:
			return nil, fmt.Errorf("GHOST: %v: the client was told that it didn't happen, the cluster has it at revision %d", o, found)
		case found == 0:
			return nil, fmt.Errorf("LOST: %v: the cluster doesn't have it", o)
		case !o.Failed && found != o.Revision:
			return nil, fmt.Errorf("MOVED: %v: the cluster has it at revision %d", o, found)
		}
		o.Revision = found
		resolved = append(resolved, o)
	}
	return resolved, nil
}
