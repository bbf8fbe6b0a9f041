// Package fair has the queue of what local programs wait for, in which none waits for all that another has asked for.
package fair

import "slices"

// A Queue is a fair queue: programs have their turns, one item each, however many wait for one of them, and the items of a
// program come in the order in which they were pushed. The zero value is empty. It isn't safe for concurrent use.
type Queue[T comparable] struct {
	programs map[any]*program[T]
	turns    []*program[T] // the same, in order
	items    int
}

// program has at least one item.
type program[T comparable] struct {
	by    any
	items []T
}

// Push puts an item behind those of its program.
func (q *Queue[T]) Push(by any, item T) {
	p := q.programs[by]
	if p == nil {
		p = &program[T]{by: by}
		if q.programs == nil {
			q.programs = map[any]*program[T]{}
		}
		q.programs[by] = p
		q.turns = append(q.turns, p)
	}
	p.items = append(p.items, item)
	q.items++
}

// Pop takes the next item that is wanted. Those before it that are not leave too, and cost their programs no turn.
func (q *Queue[T]) Pop(wanted func(T) bool) (item T, ok bool) {
	for !ok && len(q.turns) > 0 {
		p := q.turns[0]
		q.turns = q.turns[1:]
		for !ok && len(p.items) > 0 {
			item, ok = p.items[0], wanted(p.items[0])
			p.items = p.items[1:]
			q.items--
		}
		if len(p.items) > 0 {
			q.turns = append(q.turns, p)
		} else {
			delete(q.programs, p.by)
		}
	}
	return item, ok
}

// Remove takes an item out of the queue. It returns false if the item is not there.
func (q *Queue[T]) Remove(by any, item T) bool {
	p := q.programs[by]
	if p == nil {
		return false
	}
	i := slices.Index(p.items, item)
	if i < 0 {
		return false
	}
	q.items--
	if p.items = slices.Delete(p.items, i, i+1); len(p.items) == 0 {
		delete(q.programs, by)
		q.turns = slices.DeleteFunc(q.turns, func(other *program[T]) bool { return other == p })
	}
	return true
}

// Len is the number of items.
func (q *Queue[T]) Len() int { return q.items }
