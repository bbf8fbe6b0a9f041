// Package password compares passwords with their bcrypt hashes without holding up a core.
//
// golang.org/x/crypto/bcrypt compares in one go: a tenth of a second for etcd's default cost, in which
// the scheduler takes the core from it every 10 ms at the earliest. A goroutine that becomes
// runnable on that core may wait as long, and a put has several of those. Here it is the same
// computation, of the same Blowfish, in steps of a tenth of a millisecond, after each of which whatever else
// is runnable runs first.
//
// Invariants:
//
//  1. Matches says what bcrypt.CompareHashAndPassword says, of any hash.
//
// It must not import any other package of stoa.
//
// In: a hash and a password. Out: whether they match.
package password
