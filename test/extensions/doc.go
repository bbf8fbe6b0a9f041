// Package extensions attacks real servers with extensions, within the limits that hold
// where none have been set, while a plain client puts keys that no extension concerns.
//
// Each attack is a story of what some client does under /em/. Beside it the plain client
// puts at a fixed pace; what it waited is compared with how long it waits while nothing
// else goes on. No attack may change the leader or make servers keep more memory than
// has been agreed on, and afterwards all servers start again.
//
// The short form runs with the other end-to-end tests and tells a stall from none on a
// busy machine; with -long the attacks are as large as the limits let them be, and the
// figures have to be those that docs/extensions.md promises:
//
//	go test ./test/extensions -long
//
// Bench, below, measures what registered extensions cost.
package extensions
