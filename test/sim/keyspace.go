package sim

import (
	"fmt"

	"github.com/stoa-kv/stoa/internal/placement"
)

// keyspace is the keys that the clients use: few, so that they meet.
type keyspace struct {
	single []string // written alone
	dirs   []string // directories that hold most of them
	// pairs are always written together, with one value: a reader of different
	// ones has seen half of a write (I3). With several partitions the two keys
	// of a pair lie in different ones.
	pairs [][2]string
}

// Every key of a pair lies in this range, and no other.
const pairsFrom, pairsTo = "pair-", "pair."

func newKeyspace(partitions int) *keyspace {
	m := placement.New(partitions)
	k := &keyspace{dirs: []string{"/a/x/", "/b/y/"}}
	for _, dir := range k.dirs {
		for i := range 3 {
			k.single = append(k.single, fmt.Sprintf("%sk%d", dir, i))
		}
	}
	k.single = append(k.single, "s0", "s1")
	for i := 0; len(k.pairs) < 3; i++ {
		a, b := fmt.Sprintf("pair-%d-a", i), fmt.Sprintf("pair-%d-b", i)
		if partitions == 1 || m.Partition([]byte(a)) != m.Partition([]byte(b)) {
			k.pairs = append(k.pairs, [2]string{a, b})
		}
	}
	return k
}
