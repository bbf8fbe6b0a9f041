package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// Tool is a running `stoactl migrate`.
type Tool struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	out  bytes.Buffer
	done chan struct{}
	err  error
}

// Start starts one.
func Start(from, to *process.Server, args ...string) (*Tool, error) {
	path, err := process.Stoactl()
	if err != nil {
		return nil, err
	}
	t := &Tool{done: make(chan struct{})}
	t.cmd = exec.Command(path, append([]string{"migrate", "--from=" + from.ClientURL, "--to=" + to.ClientURL}, args...)...)
	t.cmd.Stdout, t.cmd.Stderr = t, t
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	t.cmd.Env = append(os.Environ(), "STOACTL_COMMAND_TIMEOUT=20s")
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		t.err = t.cmd.Wait()
		close(t.done)
	}()
	return t, nil
}

// Write takes the tool's output.
func (t *Tool) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(b)
}

// Said is all output so far.
func (t *Tool) Said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.String()
}

// Kill kills it, if it runs.
func (t *Tool) Kill() {
	_ = t.cmd.Process.Kill()
	<-t.done
}

// Interrupt is Ctrl-C.
func (t *Tool) Interrupt() error { return t.cmd.Process.Signal(os.Interrupt) }

// Wait returns the exit status.
func (t *Tool) Wait(atMost time.Duration) (int, error) {
	select {
	case <-t.done:
	case <-time.After(atMost):
		return 0, fmt.Errorf("stoactl migrate runs for more than %s:\n%s", atMost, t.Said())
	}
	var exit *exec.ExitError
	if t.err != nil && !errors.As(t.err, &exit) {
		return 0, t.err
	}
	return t.cmd.ProcessState.ExitCode(), nil
}

// Running reports whether it hasn't ended.
func (t *Tool) Running() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}
