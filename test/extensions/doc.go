// Package extensions attacks real servers with extensions, within the limits that hold
// where none have been set, while a plain client puts keys that no extension concerns.
//
// Each attack is a story of what some client does: registrations, calls, events, and failures
// that are to be blamed on others, at the default limits and at the highest that can be set,
// on one server and on three. Beside it the plain client puts at a fixed pace; the time that
// its puts take is compared with that while nothing else goes on. No attack may change the
// leader or make servers keep more memory than has been agreed on, and afterwards all
// servers start again.
//
// The short form runs with the other end-to-end tests: all attacks in turn on one cluster. It
// tells a stall from none on a busy machine; with -long each attack has a cluster of its own
// and is as large as the limits let it be, and the figures have to be those that are
// promised. "nothing" is no attack: it shows what the machine does by itself. Nor is the control,
// beside which an attack is seen that exceeds the other bounds: ordinary puts that take as much
// processor time, since servers that share their cores delay others whatever keeps them busy.
//
//	go test ./test/extensions -long -attack storm
//
// Bench, below, measures what registered extensions cost.
package extensions
