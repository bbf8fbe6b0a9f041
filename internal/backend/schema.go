package backend

import (
	"encoding/binary"
	"fmt"

	"github.com/stoa-kv/stoa/internal/store"
)

// etcd's buckets (etcd server/storage/schema) and ours.
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketLease   = "lease"
	bucketAlarm   = "alarm"
	bucketCluster = "cluster"
	bucketMembers = "members"
	bucketRemoved = "members_removed"
	bucketStoa    = "stoa"

	bucketAuth      = "auth"
	bucketAuthUsers = "authUsers"
	bucketAuthRoles = "authRoles"
)

var allBuckets = []string{
	bucketKey, bucketMeta, bucketLease, bucketAlarm, bucketCluster,
	bucketMembers, bucketRemoved, bucketAuth, bucketAuthUsers, bucketAuthRoles, bucketStoa,
}

// Keys of etcd's meta bucket.
var (
	metaIndex     = []byte("consistent_index")
	metaTerm      = []byte("term")
	metaConfState = []byte("confState")
	metaScheduled = []byte("scheduledCompactRev")
	metaFinished  = []byte("finishedCompactRev")
	metaVersion   = []byte("storageVersion")
)

// StorageVersion is the storage version of the etcd release whose schema the
// file has.
const StorageVersion = "3.7.0"

// Keys of our own bucket.
var (
	stoaFormat     = []byte("format")
	stoaCluster    = []byte("cluster")
	stoaServer     = []byte("server")
	stoaPartitions = []byte("partitions")
	stoaLog        = []byte("log")
	stoaBlob       = []byte("blob/")
)

func stoaPosition(partition int) []byte { return fmt.Appendf(nil, "position/%03d", partition) }

func be64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func readBE64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

const (
	revLen        = 17
	tombstoneMark = 't'
)

// appendRev writes a revision as etcd keys it: main, '_', sub, and a 't' if it
// is a tombstone's.
func appendRev(b []byte, rev store.Revision, tombstone bool) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(rev.Main))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(rev.Sub))
	if tombstone {
		b = append(b, tombstoneMark)
	}
	return b
}

// parseRev reads what appendRev wrote.
func parseRev(b []byte) (rev store.Revision, tombstone, ok bool) {
	switch {
	case len(b) == revLen:
	case len(b) == revLen+1 && b[revLen] == tombstoneMark:
		tombstone = true
	default:
		return rev, false, false
	}
	rev.Main = int64(binary.BigEndian.Uint64(b))
	rev.Sub = int64(binary.BigEndian.Uint64(b[9:]))
	return rev, tombstone, b[8] == '_' && rev.Main >= 0 && rev.Sub >= 0
}
