// Package password hashes passwords, and compares them with their hashes, without holding up the
// other work of the process.
//
// golang.org/x/crypto/bcrypt compares in one go: a tenth of a second for etcd's default cost, in which
// the scheduler takes the core from it every 10 ms at the earliest. A goroutine that becomes
// runnable on that core may wait as long, and a put has several of those. Here it is the same
// computation, of the same Blowfish, in steps of a tenth of a millisecond with pauses between them. To yield
// without a pause isn't enough: a core that always has something runnable doesn't look whether
// the network has something for it, and the threads of other processes wait for their share of it.
// A [Queue] hashes a few at a time, each for a quarter of the time while the process has other work,
// and for nearly all of it while it has none. Who waits is bounded in number.
//
// A password that was right once is remembered, as a digest under a random secret that
// never leaves the process, and is compared at once the next time: clients that all come back after
// a failure are few users. MySQL's caching_sha2_password and Elasticsearch's realms do the same. Wrong ones always
// pay.
//
// Invariants:
//
//  1. Matches says what bcrypt.CompareHashAndPassword says, of any hash.
//  2. Neither the passwords that wait nor those that are remembered are unbounded in number.
//
// It must not import any other package of stoa; CPU time and randomness are given to it.
//
// In: a hash and a password. Out: whether they match.
package password
