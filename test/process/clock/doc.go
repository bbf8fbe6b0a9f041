// Package clock makes servers whose wall clock tests can set, forth and back, while they run, each
// by itself. The machine's clock stays as it is.
//
// Go's programs read the clock without a system call, and Linux' time namespaces shift the monotonic
// clock only. Therefore the program is built with an overlay ([Overlay]) of package time of the
// standard library: the wall clock's part of time.Now, and nothing else, is ahead of the machine's
// by the nanoseconds that a file has, which the program maps into its memory. As when an
// administrator sets a clock, readings of the monotonic clock stay as they were, and what counts
// with them: timers, deadlines, differences of two results of time.Now.
//
// [Set] writes the file; package process gives each server one, which stays over its restarts
// (process.WithClock, Server.SetClock). The times of files are the kernel's, and aren't shifted.
//
// It must not import package process.
package clock
