// Package calllog keeps the latest log lines of extensions on one server, for
// `stoactl extension logs`.
//
// A [Log] has a ring per extension. [Log.Add] is called by apply, under the locks of
// the partitions that the call concerns; readers open a [Cursor].
//
// Invariants:
//
//  1. Memory is bounded ([Bounds]): the lines and bytes of each extension, and the bytes
//     of all together. When a bound is exceeded the oldest calls are dropped, of the
//     extension or of all.
//  2. Add takes constant time, amortized, and waits for no reader: the only lock is held
//     for moments. It allocates one record, and keeps the lines as they are.
//  3. Nothing of it is state: it is neither replicated nor stored, and starts empty.
//  4. A reader learns how many calls it has missed, and that an extension is gone.
//
// All methods may be called by any number of goroutines at once. No callbacks run under
// the lock.
package calllog
