// Package overload asks a server for more than it has memory for, and for much at once, as clients
// in good faith and in bad do, and measures the server from outside: its resident memory stays below its limit, its
// leader stays, a client beside is served or refused at once, and afterwards all are served.
//
// The tests are short; with -long they are as large as clients can be
// (make test-overload).
package overload
