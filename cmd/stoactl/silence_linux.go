package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// silence keeps a terminal from showing what is typed, and returns the way back. A signal that ends the process
// brings it back, too.
func silence() (undo func()) {
	fd := int(os.Stdin.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {} // no terminal
	}
	restore := func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		if s, ok := <-ending; ok {
			restore()
			signal.Reset(s)
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		}
	}()
	quiet := *before
	quiet.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &quiet)
	return func() {
		signal.Stop(ending)
		close(ending)
		restore()
	}
}
