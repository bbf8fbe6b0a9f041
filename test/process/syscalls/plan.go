package syscalls

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrUnsupported is the error of Attach where processes can't be traced.
var ErrUnsupported = errors.New("system calls can't be traced here")

// Kinds of calls, by their names without the variants (pwrite64 is a write, unlinkat a
// remove).
const (
	Open   = "open"
	Create = "create" // an open with O_CREAT or O_TRUNC
	Read   = "read"
	Write  = "write"
	Sync   = "sync"
	Size   = "size" // fallocate, ftruncate
	Rename = "rename"
	Remove = "remove"
	Mkdir  = "mkdir"
	Send   = "send" // on a socket
)

// Changes are the kinds that a kill can come before or after with a difference.
var Changes = []string{Create, Write, Sync, Size, Rename, Remove, Mkdir, Send}

// Plan says which calls a tracer looks at, and what it does at them.
type Plan struct {
	Kinds []string // of the constants
	// Path is part of the names of the files concerned; Send has none.
	Path string
	// Skip is how many of these calls pass before something is done.
	Skip int
	// Kill ends the process before the call, as kill -9; or After it.
	Kill, After bool
	// Errno is the error of the call, which is not executed.
	Errno syscall.Errno
	// Short has writes write half of their bytes only.
	Short bool
	// DelayMillis is a delay before the call.
	DelayMillis int
	// Always: at all calls behind Skip, not at the first only.
	Always bool
}

// Call is one that was looked at.
type Call struct {
	Kind, Path string
	Done       bool // something was done at it
}

func (c Call) String() string { return c.Kind + " " + c.Path }

// Tap is a running tracer.
type Tap struct {
	cmd   *exec.Cmd
	stdin io.Closer
	over  chan struct{}

	mu    sync.Mutex
	calls []Call
}

const planVar = "STOA_TEST_SYSCALLS"

// order is what a tracer is told.
type order struct {
	Pid  int
	Plan Plan
}

// Main is the tracer, in a process that Attach has started; in any other it does nothing.
func Main() {
	text := os.Getenv(planVar)
	if text == "" {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = trace(&o)
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Attach traces a process until Detach, or until it has ended.
func Attach(pid int, p Plan) (*Tap, error) {
	text, err := json.Marshal(order{pid, p})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), planVar+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a tracer: %w", err)
	}
	t := &Tap{cmd: cmd, stdin: in, over: make(chan struct{})}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "attached" {
		_ = in.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("%w: %s", ErrUnsupported, strings.TrimPrefix(lines.Text(), "error "))
	}
	go t.follow(lines)
	return t, nil
}

func (t *Tap) follow(lines *bufio.Scanner) {
	for lines.Scan() {
		done, rest, _ := strings.Cut(lines.Text(), " ")
		kind, path, _ := strings.Cut(rest, " ")
		t.mu.Lock()
		t.calls = append(t.calls, Call{kind, path, done == "done"})
		t.mu.Unlock()
	}
	_ = t.cmd.Wait()
	close(t.over)
}

// Detach ends the tracing, and returns the calls that were looked at.
func (t *Tap) Detach() []Call {
	_ = t.stdin.Close()
	<-t.over
	return t.Calls()
}

// Calls are those that have been looked at so far.
func (t *Tap) Calls() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// Done is the first call at which something was done; not ok if there was none yet.
func (t *Tap) Done() (c Call, ok bool) {
	calls := t.Calls()
	i := slices.IndexFunc(calls, func(c Call) bool { return c.Done })
	if i < 0 {
		return Call{}, false
	}
	return calls[i], true
}
