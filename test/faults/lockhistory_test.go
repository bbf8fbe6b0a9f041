package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func putEvent(key, value string, created, mod int64) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: created, ModRevision: mod}}
}

func deleteEvent(key string, mod int64) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: mod}}
}

// Two clients wait for the lock; the first writes, loses its lease, and the other one writes.
func TestLockHistory(t *testing.T) {
	seen := time.Now()
	begin := []*clientv3.Event{
		putEvent(lockRoot+"a", "", 2, 2), putEvent(lockRoot+"b", "", 3, 3), putEvent(fencedKey, "2 0", 4, 4), deleteEvent(lockRoot+"a", 5),
	}
	for name, c := range map[string]struct {
		then []*clientv3.Event
		says string
	}{
		"the next owner":       {then: []*clientv3.Event{putEvent(fencedKey, "3 0", 4, 6)}},
		"the one that lost it": {then: []*clientv3.Event{putEvent(fencedKey, "2 1", 4, 6)}, says: "UNPROTECTED"},
		"nobody has it":        {then: []*clientv3.Event{deleteEvent(lockRoot+"b", 6), putEvent(fencedKey, "3 0", 4, 7)}, says: "UNPROTECTED"},
		"not a client":         {then: []*clientv3.Event{putEvent(fencedKey, "", 4, 6)}, says: "no client wrote"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newLockHistory()
			require.NoError(t, h.add(begin, seen))
			err := h.add(c.then, seen)
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, 2, h.writes)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}

	h := newLockHistory()
	require.NoError(t, h.add(begin, seen))
	require.NoError(t, h.expired([]keptAlive{{token: 2, until: seen}, {token: 3, until: seen.Add(time.Hour)}}))
	require.NoError(t, h.expired([]keptAlive{{token: 2, until: seen.Add(time.Second), revoked: true}}))
	require.ErrorContains(t, h.expired([]keptAlive{{token: 2, until: seen.Add(time.Second)}}), "EARLY")
}
