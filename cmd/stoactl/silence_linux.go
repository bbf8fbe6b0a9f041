package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// silence keeps a terminal from showing what is typed, and returns the way back.
func silence() (undo func()) {
	fd := int(os.Stdin.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {} // no terminal
	}
	quiet := *before
	quiet.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &quiet)
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
