// Package syscalls stops a running process at its system calls on files and sockets: to kill
// it there, to have a call fail, be short, or be slow.
//
// [Attach] starts a tracer (ptrace) for all threads of a process. It is this program once
// more, so that what it waits for doesn't mix with the children of the tests; the main
// function, or TestMain, calls [Main] first. Only calls that change what is on a disk, that
// open or read files, or that send are looked at: all others leave nothing behind that a kill
// could cut in two.
//
// Linux on amd64 only; elsewhere, or where ptrace is forbidden, Attach returns ErrUnsupported.
package syscalls
