package mirror

import (
	"context"
	"errors"
)

// KV is a key as it is compared.
type KV struct {
	Key, Value []byte
	Lease      int64 // 0: none
}

// Change is one change of one key.
type Change struct {
	Revision int64
	Key      []byte
	Value    []byte
	Deleted  bool
}

// Source is the cluster that is mirrored. Its methods are called by one goroutine at a
// time, except Page.
type Source interface {
	// ID is the cluster's ID.
	ID(ctx context.Context) (uint64, error)
	// Revision is the cluster's current revision, linearizable.
	Revision(ctx context.Context) (int64, error)
	// Page returns keys as they were at a revision, in order, from a key on, and the key at
	// which the next page begins; nil behind the last. Revision 0 is the current one,
	// linearizable. It fails with ErrCompacted if the revision is compacted.
	Page(ctx context.Context, from []byte, revision int64) (kvs []KV, next []byte, err error)
	// Changes begins to collect the changes from a revision on, until the feed is closed.
	Changes(ctx context.Context, from int64) Feed
}

// Feed is a sequence of changes.
type Feed interface {
	// Next waits for further changes. They are of whole revisions, in order; there may be
	// none. All changes up to the revision through have been returned then. It fails with
	// ErrCompacted if changes are missing. No changes are lost if its context ends.
	Next(ctx context.Context) (changes []Change, through int64, err error)
	// Ask makes Next return soon, with the present revision, if there are no changes.
	Ask(ctx context.Context) error
	Close()
}

// Target is the cluster that is written.
type Target interface {
	// Page is as Source's. The mark isn't in it.
	Page(ctx context.Context, from []byte, revision int64) (kvs []KV, next []byte, err error)
	// Mark returns the value of the mark and the revision of its last change, 0 if there is
	// none, linearizable.
	Mark(ctx context.Context) (value []byte, modRevision int64, err error)
	// Commit executes a transaction. It may be called by several goroutines.
	Commit(ctx context.Context, t Txn) (Result, error)
}

// Txn is a transaction of the target.
type Txn struct {
	// If is the mod revision that the mark must have, 0: there must be none. Was is the
	// value that it must have: in a target that was restored, another mark may get the
	// revision of one that was lost.
	If  int64
	Was []byte
	Ops []Op
	// Mark is the new value of the mark, nil: it stays as it is.
	Mark []byte
	// Finish deletes the mark.
	Finish bool
}

// Op changes one key.
type Op struct {
	Key, Value []byte
	Delete     bool
	// Lease, if not 0, is attached to the key, whose value stays as it is.
	Lease int64
}

func (o Op) size() int { return len(o.Key) + len(o.Value) + opOverhead }

// opOverhead bounds what the encoding of an operation adds to its key and value, in bytes.
const opOverhead = 32

// Result is the outcome of a transaction.
type Result struct {
	Revision int64 // of the target, at which the transaction took effect or was refused
	// Refused means that the mark was another one: Mark and ModRevision.
	Refused     bool
	Mark        []byte
	ModRevision int64
}

// Errors of sources and executors.
var (
	// ErrCompacted: the source has compacted what was asked for.
	ErrCompacted = errors.New("the source has compacted the revision")
	// ErrTakenOver: another executor has written the mark.
	ErrTakenOver = errors.New("another process has taken over")
	// ErrFinished: the mark is gone: another executor has finished.
	ErrFinished = errors.New("the mark in the target is gone: another process has finished or removed it")
	// ErrNotEmpty: the target has keys and no mark.
	ErrNotEmpty = errors.New("the target has keys already")
	// ErrOtherSource: the mark is of a mirror of another cluster.
	ErrOtherSource = errors.New("the target is a mirror of another cluster")
	// ErrOtherKeys: the mark is of a mirror of other keys of the cluster.
	ErrOtherKeys = errors.New("the target is a mirror of other keys")
)
