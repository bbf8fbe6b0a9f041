package syscalls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a call names its file.
type naming int

const (
	byDescriptor naming = iota
	byPath              // the first argument
	byPathAt            // the second argument, below a directory
)

// known are the calls that are looked at.
var known = map[uint64]struct {
	kind string
	by   naming
}{
	unix.SYS_OPENAT: {Open, byPathAt}, unix.SYS_OPEN: {Open, byPath},
	unix.SYS_READ: {Read, byDescriptor}, unix.SYS_PREAD64: {Read, byDescriptor},
	unix.SYS_WRITE: {Write, byDescriptor}, unix.SYS_PWRITE64: {Write, byDescriptor}, unix.SYS_WRITEV: {Write, byDescriptor},
	unix.SYS_FSYNC: {Sync, byDescriptor}, unix.SYS_FDATASYNC: {Sync, byDescriptor},
	unix.SYS_FALLOCATE: {Size, byDescriptor}, unix.SYS_FTRUNCATE: {Size, byDescriptor},
	unix.SYS_RENAME: {Rename, byPath}, unix.SYS_RENAMEAT: {Rename, byPathAt}, unix.SYS_RENAMEAT2: {Rename, byPathAt},
	unix.SYS_UNLINK: {Remove, byPath}, unix.SYS_UNLINKAT: {Remove, byPathAt},
	unix.SYS_MKDIR: {Mkdir, byPath}, unix.SYS_MKDIRAT: {Mkdir, byPathAt},
	unix.SYS_SENDTO: {Send, byDescriptor}, unix.SYS_SENDMSG: {Send, byDescriptor},
}

// syscallInfo is the kernel's struct ptrace_syscall_info.
type syscallInfo struct {
	op     uint8 // 1: before the call, 2: after it
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64 // before
	args   [6]uint64
	_      uint64
}

const (
	requestSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO
	beforeCall         = 1
	syscallStop        = unix.SIGTRAP | 0x80
)

// tracer is the only thread of its process that may use ptrace.
type tracer struct {
	order
	seen   int
	done   bool
	ending atomic.Bool
	failed map[int]syscall.Errno // threads in calls that were not executed
	after  map[int]bool          // threads to be killed behind the call
	late   map[int]time.Time     // threads that wait, with the end of that
}

func trace(o *order) error {
	runtime.LockOSThread()
	t := &tracer{order: *o, failed: map[int]syscall.Errno{}, after: map[int]bool{}, late: map[int]time.Time{}}
	if err := t.seize(); err != nil {
		return err
	}
	go func() { // the threads go on when their tracer ends; none must be inside what it does to them
		_, _ = io.Copy(io.Discard, os.Stdin)
		t.ending.Store(true)
		time.Sleep(10 * time.Millisecond)
		os.Exit(0)
	}()
	fmt.Println("attached")
	return t.run()
}

// seize traces all threads, and those that they start meanwhile.
func (t *tracer) seize() error {
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE
	seized := map[int]bool{}
	for more := true; more; {
		more = false
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", t.Pid))
		if err != nil {
			return err
		}
		for _, dir := range threads {
			tid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || seized[tid] {
				continue
			}
			switch err := ptrace(unix.PTRACE_SEIZE, tid, 0, options); {
			case errors.Is(err, unix.ESRCH):
				continue
			case errors.Is(err, unix.EPERM) && len(seized) > 0:
				// one that was started by a thread that was seized already
			case err != nil:
				return fmt.Errorf("tracing thread %d: %w", tid, err)
			default:
				_ = ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0)
			}
			seized[tid], more = true, true
		}
	}
	if len(seized) == 0 {
		return fmt.Errorf("there is no process %d", t.Pid)
	}
	return nil
}

func ptrace(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// run lets the threads go from call to call until the process has ended.
func (t *tracer) run() error {
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|t.wake(), nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && tid == 0 { // some are late
			time.Sleep(time.Millisecond / 2)
			continue
		}
		if errors.Is(err, unix.ECHILD) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting: %w", err)
		}
		if !status.Stopped() {
			if tid == t.Pid {
				return nil
			}
			continue
		}
		deliver := unix.Signal(0)
		switch sig := status.StopSignal(); {
		case sig == syscallStop:
			t.stopped(tid)
		case status>>16 == 0: // about to get a signal
			deliver = sig
		case status>>16 == unix.PTRACE_EVENT_STOP && sig != unix.SIGTRAP: // stopped as a group
			_ = ptrace(unix.PTRACE_LISTEN, tid, 0, 0)
			continue
		}
		if _, waits := t.late[tid]; !waits {
			_ = ptrace(unix.PTRACE_SYSCALL, tid, 0, uintptr(deliver)) // it may be gone
		}
	}
}

// wake lets threads go on whose delay is over. While there are others, the tracer must not
// wait for longer than they do.
func (t *tracer) wake() (options int) {
	for tid, end := range t.late {
		if time.Now().After(end) || t.ending.Load() {
			delete(t.late, tid)
			_ = ptrace(unix.PTRACE_SYSCALL, tid, 0, 0)
		}
	}
	if len(t.late) > 0 {
		return unix.WNOHANG
	}
	return 0
}

// stopped looks at the call at which a thread stands.
func (t *tracer) stopped(tid int) {
	var info syscallInfo
	if err := ptrace(requestSyscallInfo, tid, unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info))); err != nil {
		return
	}
	if info.op != beforeCall {
		if errno, ok := t.failed[tid]; ok {
			delete(t.failed, tid)
			t.change(tid, func(r *unix.PtraceRegs) { r.Rax = uint64(-int64(errno)) })
		}
		if t.after[tid] {
			_ = unix.Kill(t.Pid, unix.SIGKILL)
		}
		return
	}
	c, ok := t.call(tid, &info)
	if !ok || t.ending.Load() {
		return
	}
	t.seen++
	c.Done = t.seen > t.Plan.Skip && (t.Plan.Always || !t.done)
	says := "seen"
	if c.Done {
		t.done, says = true, "done"
	}
	fmt.Println(says, c)
	if c.Done {
		t.act(tid, c)
	}
}

func (t *tracer) act(tid int, c Call) {
	p := t.Plan
	if p.DelayMillis > 0 {
		t.late[tid] = time.Now().Add(time.Duration(p.DelayMillis) * time.Millisecond)
	}
	if p.Short && c.Kind == Write {
		t.change(tid, func(r *unix.PtraceRegs) { r.Rdx /= 2 })
	}
	switch {
	case p.Kill && p.After:
		t.after[tid] = true
	case p.Kill:
		_ = unix.Kill(t.Pid, unix.SIGKILL)
	case p.Errno != 0:
		t.failed[tid] = p.Errno
		t.change(tid, func(r *unix.PtraceRegs) { r.Orig_rax = ^uint64(0) })
	}
}

func (t *tracer) change(tid int, f func(*unix.PtraceRegs)) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) == nil {
		f(&regs)
		_ = unix.PtraceSetRegs(tid, &regs)
	}
}

// call says what a call is; not ok if the plan isn't about it.
func (t *tracer) call(tid int, info *syscallInfo) (c Call, ok bool) {
	k, ok := known[info.number]
	if !ok {
		return c, false
	}
	c.Kind = k.kind
	switch k.by {
	case byDescriptor:
		c.Path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.Pid, int32(info.args[0])))
	case byPath:
		c.Path = t.text(tid, info.args[0])
	case byPathAt:
		c.Path = t.text(tid, info.args[1])
	}
	if info.number == unix.SYS_OPENAT && info.args[2]&(unix.O_CREAT|unix.O_TRUNC) != 0 {
		c.Kind = Create
	}
	if strings.HasPrefix(c.Path, "socket:") {
		if c.Kind == Write {
			c.Kind = Send
		}
		return c, c.Kind == Send && slices.Contains(t.Plan.Kinds, Send)
	}
	return c, strings.HasPrefix(c.Path, "/") && strings.Contains(c.Path, t.Plan.Path) && slices.Contains(t.Plan.Kinds, c.Kind)
}

// text reads a string of the process.
func (t *tracer) text(tid int, addr uint64) string {
	b := make([]byte, 4096)
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return ""
	}
	defer f.Close()
	n, _ := f.ReadAt(b, int64(addr)) // the page may be the last
	text, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(text)
}
