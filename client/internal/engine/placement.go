package engine

import (
	"bytes"
	"sync"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// atlas is the client's copy of the partition map: a hint for ordering requests
// by partition. A stale one only costs time.
type atlas struct {
	mu  sync.RWMutex
	now *stoapb.PartitionMap
	by  map[string]uint32 // rules
	// longest of the rules' keys
	longest int
}

// learn takes a map, which all sessions of a client share.
func (a *atlas) learn(m *stoapb.PartitionMap) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now != nil && proto.Equal(a.now, m) {
		return
	}
	a.now, a.by, a.longest = m, make(map[string]uint32, len(m.Rules)), 0
	for _, r := range m.Rules {
		a.by[string(r.Key)] = r.Slot
		a.longest = max(a.longest, len(r.Key))
	}
}

// Partition is the partition of a key as far as the client knows; false before
// its first session was opened. Keys may have moved since.
func (c *Client) Partition(key string) (int, bool) {
	p, ok := c.placement.partition([]byte(key))
	return int(p), ok
}

// partition is the partition of a key as far as is known; 0 if nothing is.
func (a *atlas) partition(key []byte) (uint32, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.now == nil || len(a.now.Slots) == 0 {
		return 0, false
	}
	slot, ok := a.ruled(key)
	if !ok {
		slot = uint32(xxhash.Sum64(placementPrefix(key)) % uint64(len(a.now.Slots)))
	}
	if int(slot) >= len(a.now.Slots) {
		return 0, false
	}
	return uint32(a.now.Slots[slot]), true
}

// ruled finds the longest rule for a key. It needs the lock.
func (a *atlas) ruled(key []byte) (uint32, bool) {
	if len(a.by) == 0 {
		return 0, false
	}
	if slot, ok := a.by[string(key)]; ok {
		return slot, true
	}
	for end := min(len(key), a.longest); end > 0; end-- {
		if key[end-1] != '/' {
			continue
		}
		if slot, ok := a.by[string(key[:end])]; ok {
			return slot, true
		}
	}
	return 0, false
}

// placementPrefix is the part of a key that is hashed: its directory with the
// slash, two levels deep at the most, or all of it if it has no slash behind
// the first byte.
func placementPrefix(key []byte) []byte {
	if len(key) == 0 {
		return key
	}
	first := bytes.IndexByte(key[1:], '/')
	if first < 0 {
		return key
	}
	end := 1 + first + 1
	if second := bytes.IndexByte(key[end:], '/'); second >= 0 {
		return key[:end+second+1]
	}
	return key[:end]
}
