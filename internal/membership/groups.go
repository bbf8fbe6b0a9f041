package membership

import "fmt"

// Groups are the Raft groups of the cluster, one for each partition. Their number changes as a
// whole: every change begins a generation. A group that goes never comes back: the one that has
// its partition later is another, with an empty log. Immutable.
type Groups struct {
	// Generation counts the changes.
	Generation uint32 `json:"generation"`
	// Born is, for each group, the generation in which it began.
	Born []uint32 `json:"born"`
	// Next is the number of groups in the next generation, which begins here: nothing of this
	// one is executed any more. 0: there is none yet.
	Next int `json:"next,omitempty"`
}

// FirstGroups are those with which a cluster begins.
func FirstGroups(n int) *Groups { return &Groups{Born: make([]uint32, n)} }

// Bits of a group's number that are its partition's.
const partitionBits = 8

// Number names the group of a partition among all that ever were: in the log, and between
// servers. In a cluster whose groups have never changed it is the partition's.
func (g *Groups) Number(partition int) uint32 {
	return g.Born[partition]<<partitionBits | uint32(partition)
}

// PartitionOf is the partition of a group by its number, of whatever generation.
func PartitionOf(number uint32) int { return int(number & (1<<partitionBits - 1)) }

// Partition is that of a group by its number; not ok if there is no such group in this
// generation.
func (g *Groups) Partition(number uint32) (partition int, ok bool) {
	p := PartitionOf(number)
	return p, p < len(g.Born) && g.Born[p] == number>>partitionBits
}

// Gone tells whether there was a group with this number in an earlier generation.
func (g *Groups) Gone(number uint32) bool {
	_, is := g.Partition(number)
	return !is && number>>partitionBits <= g.Generation
}

// Ending is the generation at its end, before another with n groups.
func (g *Groups) Ending(n int) *Groups {
	return &Groups{Generation: g.Generation, Born: g.Born, Next: n}
}

// Following is the next generation. Groups that are in both go on.
func (g *Groups) Following() *Groups {
	next := &Groups{Generation: g.Generation + 1, Born: make([]uint32, g.Next)}
	for p := range next.Born {
		if next.Born[p] = next.Generation; p < len(g.Born) {
			next.Born[p] = g.Born[p]
		}
	}
	return next
}

// Check returns what is wrong with the groups of a file with a number of partitions.
func (g *Groups) Check(partitions int) error {
	if len(g.Born) != partitions {
		return fmt.Errorf("%d groups, and %d partitions", len(g.Born), partitions)
	}
	for p, born := range g.Born {
		if born > g.Generation {
			return fmt.Errorf("group %d began in generation %d, and this is %d", p, born, g.Generation)
		}
	}
	return nil
}
