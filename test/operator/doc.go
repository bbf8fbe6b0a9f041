// Package operator has the tests of what an operator does to the servers of a cluster,
// right and wrong, over real processes: what works goes on working, and what must not be
// done is refused with one line that says what it is about and what to do, never with a
// panic.
package operator
