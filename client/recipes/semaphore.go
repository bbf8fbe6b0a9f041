package recipes

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Semaphore is held by at most so many at a time; with a limit of 1 it is a lock. Those
// that wait get it in turn.
type Semaphore struct {
	client     handle
	root, name string
}

// NewSemaphore returns the semaphore of a name.
func NewSemaphore(c Client, root, name string) *Semaphore {
	return &Semaphore{client: handle{c, c}, root: rootOf("semaphore", root), name: name}
}

// SetLimit sets the number of participants that may hold the semaphore. Those
// that hold it keep it, even if the limit is now lower.
func (s *Semaphore) SetLimit(ctx context.Context, n int) error {
	if _, err := s.client.Put(ctx, s.root+"limit/"+s.name, strconv.Itoa(n)); err != nil {
		return s.failed("setting the limit of", err)
	}
	return nil
}

// TryAcquire reports whether the participant holds the semaphore now. It
// doesn't wait, and it doesn't overtake those that do.
func (s *Semaphore) TryAcquire(ctx context.Context, id string, lease clientv3.LeaseID) (bool, error) {
	key, err := s.asking(id, lease)
	if err != nil {
		return false, s.failed("acquiring", err)
	}
	answer, err := call(ctx, s.client, key, "")
	if err == nil && answer == nil {
		err = ErrUnhandled
	}
	if err != nil {
		return false, s.failed("acquiring", err)
	}
	return string(answer.Value) == "true", nil
}

// Acquire waits until the participant holds the semaphore. The revision grows
// with each hold of a lock: it can fence its holder's writes to other systems.
// When the context ends first, the participant doesn't wait any longer.
func (s *Semaphore) Acquire(ctx context.Context, id string, lease clientv3.LeaseID) (revision int64, err error) {
	key, err := s.asking(id, lease)
	if err != nil {
		return 0, s.failed("acquiring", err)
	}
	kv, err := await(ctx, s.client, key)
	if err != nil {
		// In this order: one that waits no longer can't come to hold it meanwhile.
		forget(ctx, s.client, s.keyOf("waiting/", id), s.keyOf("holders/", id))
		return 0, s.failed("acquiring", err)
	}
	return kv.CreateRevision, nil
}

// Release releases the semaphore, or fails with ErrNotYours.
func (s *Semaphore) Release(ctx context.Context, id string) error {
	resp, err := s.client.Delete(ctx, s.keyOf("holders/", id))
	if err == nil && resp.Deleted == 0 {
		err = ErrNotYours
	}
	if err != nil {
		return s.failed("releasing", err)
	}
	return nil
}

func (s *Semaphore) asking(id string, lease clientv3.LeaseID) (string, error) {
	if err := checkName("name", s.name); err != nil {
		return "", err
	}
	who, err := participant(id, lease)
	return s.keyOf("acquire/", who), err
}

func (s *Semaphore) keyOf(what, id string) string { return s.root + what + s.name + "/" + id }

func (s *Semaphore) failed(doing string, err error) error {
	return fmt.Errorf("recipes: %s the semaphore %s%s: %w", doing, s.root, s.name, err)
}
