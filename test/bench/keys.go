package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// each does something for 0 to n-1 at once, and waits.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// directories, as one finds them in a coordination store, share the keys.
const directories = 100

func keyName(i int) string { return keyAmong(directories, i) }

func keyAmong(directories, i int) string {
	return fmt.Sprintf("/bench/%02d/key-%06d", i%directories, i)
}

// keyspace is what sessions work on: an encoded request for every key, for each kind
// of work. The kinds are put, and get with its level (strict is plain "get").
type keyspace struct {
	directories int // which the keys share
	keys        []string
	value       []byte
	stoa        map[string][][]byte
	zk          map[string][][]byte
}

var levels = map[string]stoapb.Level{"get": stoapb.Level_STRICT, "causal": stoapb.Level_CAUSAL, "fast": stoapb.Level_FAST}

func newKeyspace(directories, n, value int) (*keyspace, error) {
	k := &keyspace{directories: directories, value: bytes.Repeat([]byte{'x'}, value), stoa: map[string][][]byte{}, zk: map[string][][]byte{}}
	for i := range n {
		key := keyAmong(directories, i)
		k.keys = append(k.keys, key)
		put, err := proto.Marshal(&pb.PutRequest{Key: []byte(key), Value: k.value})
		if err != nil {
			return nil, fmt.Errorf("encoding the requests: %w", err)
		}
		get, err := proto.Marshal(&pb.RangeRequest{Key: []byte(key)})
		if err != nil {
			return nil, fmt.Errorf("encoding the requests: %w", err)
		}
		k.stoa["put"] = append(k.stoa["put"], stoaRequest(stoapb.Kind_PUT, 0, put))
		for name, level := range levels {
			k.stoa[name] = append(k.stoa[name], stoaRequest(stoapb.Kind_RANGE, level, get))
		}
		k.zk["put"] = append(k.zk["put"], zkRequest(zkSetData, key, k.value))
		k.zk["get"] = append(k.zk["get"], zkRequest(zkGetData, key, nil))
	}
	return k, nil
}

// atLeast is how large the answer to an operation is.
func (k *keyspace) atLeast(op string) int {
	if op == "put" {
		return 0
	}
	return len(k.value)
}

// picker says which key is next; every session has its own.
type picker func() int

// anyKey is a new picker of random keys.
func (k *keyspace) anyKey(seed int) picker {
	rnd := rand.New(rand.NewPCG(uint64(seed), 7))
	return func() int { return rnd.IntN(len(k.keys)) }
}

// ownKeys is a new picker of random keys of one directory.
func (k *keyspace) ownKeys(session int) picker {
	rnd := rand.New(rand.NewPCG(uint64(session), 7))
	each := max(len(k.keys)/k.directories, 1)
	return func() int { return (rnd.IntN(each)*k.directories + session%k.directories) % len(k.keys) }
}

// inRuns picks random keys of one partition run times, then of the next. Run 0 never
// leaves the partition that the seed says.
func inRuns(byPartition [][]int, run, seed int) picker {
	rnd := rand.New(rand.NewPCG(uint64(seed), 7))
	at, left := seed%len(byPartition), run
	return func() int {
		if run > 0 && left == 0 {
			at, left = (at+1)%len(byPartition), run
		}
		left--
		list := byPartition[at]
		return list[rnd.IntN(len(list))]
	}
}

// byPartition sorts the keys by where a map says that they live; see PartitionMap.
func (k *keyspace) byPartition(m *stoapb.PartitionMap) ([][]int, error) {
	if m == nil {
		return nil, errors.New("the server doesn't say where keys live")
	}
	lists := make([][]int, m.Partitions)
	for i, key := range k.keys {
		directory := key[:strings.LastIndexByte(key, '/')+1]
		at := m.Slots[xxhash.Sum64String(directory)%uint64(len(m.Slots))]
		lists[at] = append(lists[at], i)
	}
	for i, l := range lists {
		if len(l) == 0 {
			return nil, fmt.Errorf("partition %d of %d has no keys", i, len(lists))
		}
	}
	return lists, nil
}
