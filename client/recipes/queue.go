package recipes

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Queue hands each element to one consumer, in the order in which they were added.
type Queue struct {
	client handle
	root   string
}

// ErrEmpty: the queue holds no element.
var ErrEmpty = errors.New("the queue is empty")

// NewQueue returns the queue at a root.
func NewQueue(c Client, root string) *Queue {
	return &Queue{client: handle{c, c}, root: rootOf("queue", root)}
}

// Add appends an element and returns the queue's length: 0 if a consumer was
// waiting for it.
func (q *Queue) Add(ctx context.Context, element string) (length int64, err error) {
	n, err := callNumber(ctx, q.client, q.root+"add", element)
	if err != nil {
		return 0, fmt.Errorf("recipes: adding to %s: %w", q.root, err)
	}
	return n, nil
}

// Length is the number of elements in the queue.
func (q *Queue) Length(ctx context.Context) (int64, error) {
	resp, err := q.client.Get(ctx, q.root+"length")
	if err != nil {
		return 0, fmt.Errorf("recipes: asking for the length of %s: %w", q.root, err)
	}
	n, err := number(one(resp))
	if err != nil {
		return 0, fmt.Errorf("recipes: asking for the length of %s: %w", q.root, err)
	}
	return n, nil
}

// Remove removes the oldest element and returns it, or ErrEmpty. If the answer
// is lost, so is the element; use Take where that must not happen.
func (q *Queue) Remove(ctx context.Context) (string, error) {
	answer, err := call(ctx, q.client, q.root+"head", "")
	if err == nil && answer == nil {
		err = ErrEmpty
	}
	if err != nil {
		return "", fmt.Errorf("recipes: removing from %s: %w", q.root, err)
	}
	return string(answer.Value), nil
}

// Task is an element held by a consumer.
type Task struct {
	Element string

	q        *Queue
	id       string
	revision int64 // of the key that says that it has the element
}

// Take waits for an element, in turn with others who wait. The element is this
// consumer's until it calls Done, calls Return, or its lease ends. If the
// consumer has one already (the answer of an earlier Take was lost), it gets
// that one again. When the context ends first, the consumer doesn't wait any
// longer.
func (q *Queue) Take(ctx context.Context, id string, lease clientv3.LeaseID) (*Task, error) {
	who, err := participant(id, lease)
	if err != nil {
		return nil, fmt.Errorf("recipes: taking from %s: %w", q.root, err)
	}
	kv, err := await(ctx, q.client, q.root+"take/"+who)
	if err != nil {
		forget(ctx, q.client, q.root+"take/"+id)
		return nil, fmt.Errorf("recipes: taking from %s: %w", q.root, err)
	}
	return &Task{Element: string(kv.Value), q: q, id: id, revision: kv.ModRevision}, nil
}

// ErrNotYours: the element or hold isn't the caller's any more, because its
// lease has ended. Another participant has it, or will.
var ErrNotYours = errors.New("it isn't the caller's any more")

// Done removes the element after it has been processed.
func (t *Task) Done(ctx context.Context) error {
	return t.end("finishing an element", func() (ended bool, err error) {
		return t.q.client.deleteIf(ctx, clientv3.Compare(clientv3.ModRevision(t.key()), "=", t.revision), t.key())
	})
}

// Return puts the element back to the front of the queue.
func (t *Task) Return(ctx context.Context) error {
	return t.end("giving an element back", func() (ended bool, err error) {
		resp, err := t.q.client.Get(ctx, t.key())
		if err != nil {
			return false, err
		}
		if kv := one(resp); kv == nil || kv.ModRevision != t.revision {
			return false, nil
		}
		deleted, err := t.q.client.Delete(ctx, t.q.root+"take/"+t.id)
		return err == nil && deleted.Deleted > 0, err
	})
}

func (t *Task) key() string { return t.q.root + "taken/" + t.id }

func (t *Task) end(what string, end func() (ended bool, err error)) error {
	if t.q == nil {
		return fmt.Errorf("recipes: %s: %w", what, errNoClient)
	}
	ended, err := end()
	if err == nil && !ended {
		err = ErrNotYours
	}
	if err != nil {
		return fmt.Errorf("recipes: %s of %s: %w", what, t.q.root, err)
	}
	return nil
}
