package faults

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Clients take a lock by etcd's recipe (concurrency.Mutex), and while they have it, as far as they
// know, they write with its fencing token. A client that is cut off believes that it has a lock
// which has gone to another; its writes must not take effect then.

const (
	lockRoot   = "/locks/mutex/"
	fencedKey  = "/fenced/resource" // in another directory: another partition
	lockTTL    = 2                  // seconds
	fencedLoop = 5                  // writes under one lock
)

// fenced is a write under a lock: only if the lock's key is still the one that it was.
func fenced(lockKey string, token int64, n int) clientv3.Op {
	return clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(lockKey), "=", token)},
		[]clientv3.Op{clientv3.OpPut(fencedKey, fmt.Sprintf("%d %d", token, n))}, nil)
}

// keptAlive is what a client knows of its lease: if nobody revoked it, it lives until then.
type keptAlive struct {
	lockKey string
	token   int64
	until   time.Time
	revoked bool // by its client, perhaps
}

// lockHistory follows the lock and what it protects, event by event.
type lockHistory struct {
	waiting map[string]int64    // keys of the lock: their create revisions
	gone    map[int64]time.Time // by create revision: when a client learned that it had been deleted
	writes  int
	token   int64 // of the last write
}

func newLockHistory() *lockHistory {
	return &lockHistory{waiting: map[string]int64{}, gone: map[int64]time.Time{}}
}

// add checks one revision's events: a write under the lock is by its owner, which is the oldest of
// those that wait for it.
func (h *lockHistory) add(events []*clientv3.Event, seen time.Time) error {
	for _, e := range events {
		key := string(e.Kv.Key)
		switch {
		case key == fencedKey:
			if err := h.write(string(e.Kv.Value), e.Kv.ModRevision); err != nil {
				return err
			}
		case !strings.HasPrefix(key, lockRoot):
		case e.Type == clientv3.EventTypeDelete:
			h.gone[h.waiting[key]] = seen
			delete(h.waiting, key)
		default:
			h.waiting[key] = e.Kv.CreateRevision
		}
	}
	return nil
}

func (h *lockHistory) write(value string, rev int64) error {
	text, _, _ := strings.Cut(value, " ")
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("revision %d is %q, which no client wrote", rev, value)
	}
	owner := int64(0)
	for _, created := range h.waiting {
		if owner == 0 || created < owner {
			owner = created
		}
	}
	switch {
	case token != owner:
		return fmt.Errorf("UNPROTECTED: revision %d was written with the token %d, while %d had the lock", rev, token, owner)
	case token < h.token:
		return fmt.Errorf("UNPROTECTED: revision %d was written with the token %d, after %d", rev, token, h.token)
	}
	h.token = token
	h.writes++
	return nil
}

// expired checks that no lease ended before its time.
func (h *lockHistory) expired(all []keptAlive) error {
	for _, k := range all {
		at, gone := h.gone[k.token]
		if gone && !k.revoked && at.Before(k.until) {
			return fmt.Errorf("EARLY: the lease of %s (%d) was to live for %v more when it ended", k.lockKey, k.token, k.until.Sub(at))
		}
	}
	return nil
}
