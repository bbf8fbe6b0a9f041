package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process/clock"
)

// ReadyLine is what etcd, and every server in its place, logs once its client
// port is open and there is a leader.
const ReadyLine = "ready to serve client requests"

// Server is one server process and what it needs to be started again.
type Server struct {
	Name       string
	ClientURL  string
	PeerURL    string
	MetricsURL string // "" without Spec.Metrics
	DataDir    string
	LogFile    string

	bin       Binary
	args      []string
	env       []string
	readyLine string // its log line once it serves
	enter     func(start func() error) error

	mu  sync.Mutex
	run *run // nil while no process runs
}

// run is one incarnation of the process.
type run struct {
	cmd    *exec.Cmd
	ready  chan struct{}
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// With is the same server with more flags, to be started beside or in place of it. It
// logs to a file of its own.
func (s *Server) With(flags ...string) *Server {
	return &Server{Name: s.Name, ClientURL: s.ClientURL, PeerURL: s.PeerURL, DataDir: s.DataDir,
		LogFile: s.LogFile + ".2", bin: s.bin, args: append(slices.Clone(s.args), flags...), env: s.env, readyLine: s.readyLine, enter: s.enter}
}

// Env is the same server with more in its environment.
func (s *Server) Env(vars ...string) *Server {
	o := s.With()
	o.env = append(slices.Clone(s.env), vars...)
	return o
}

// Use has the next start run another program.
func (s *Server) Use(bin Binary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bin = bin
}

// Joins has the next start join the cluster, to which the server has been added again, with an empty data directory.
func (s *Server) Joins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, arg := range s.args {
		if strings.HasPrefix(arg, "--initial-cluster-state=") {
			s.args[i] = "--initial-cluster-state=existing"
		}
	}
}

// Without is the same server without the flags that begin with one of the prefixes.
func (s *Server) Without(prefixes ...string) *Server {
	o := s.With()
	o.args = slices.DeleteFunc(o.args, func(arg string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(arg, p) })
	})
	return o
}

// Start launches the process and returns at once; WaitReady waits for it.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return fmt.Errorf("starting %s: it runs already", s.Name)
	}
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", s.Name, err)
	}
	defer log.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	defer in.Close()
	cmd := exec.Command(s.bin.Path, s.args...)
	cmd.Env = append(os.Environ(), s.env...)
	if s.bin.Clock {
		if err := clock.Make(s.clock()); err != nil {
			return fmt.Errorf("starting %s: %w", s.Name, err)
		}
		cmd.Env = append(cmd.Env, clock.Env+"="+s.clock())
	}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	fmt.Fprintf(log, "--- %s %s\n", s.bin.Path, strings.Join(s.args, " "))
	start := cmd.Start
	if s.enter != nil {
		start = func() error { return s.enter(cmd.Start) }
	}
	if err := start(); err != nil {
		out.Close()
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	r := &run{cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{})}
	s.run = r
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.follow(out, s.LogFile, s.readyLine)
	}()
	go func() {
		r.err = cmd.Wait()
		<-read
		close(r.exited)
	}()
	return nil
}

// follow copies what the process says to its log file and looks for the ready line.
func (r *run) follow(out io.ReadCloser, file, readyLine string) {
	defer out.Close()
	log, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer log.Close()
	lines := bufio.NewReaderSize(out, 64<<10)
	for ready := false; ; {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if !ready && strings.Contains(line, readyLine) {
			ready = true
			close(r.ready)
		}
		if err != nil {
			return
		}
	}
}

// WaitReady waits until the server serves; if it exits meanwhile, the error has
// the end of its log.
func (s *Server) WaitReady(ctx context.Context) error {
	r := s.current()
	if r == nil {
		return fmt.Errorf("waiting for %s: it is not running", s.Name)
	}
	select {
	case <-r.ready:
		return nil
	case <-r.exited:
		return fmt.Errorf("%s ended before it was ready (%v):\n%s", s.Name, r.err, s.LogTail(2000))
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w; log:\n%s", s.Name, ctx.Err(), s.LogTail(2000))
	}
}

func (s *Server) current() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// Running reports whether the process is running.
func (s *Server) Running() bool {
	r := s.current()
	if r == nil {
		return false
	}
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// Pid is the process's id, 0 if it doesn't run.
func (s *Server) Pid() int {
	if r := s.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Signal sends sig, if the process runs.
func (s *Server) Signal(sig syscall.Signal) error {
	r := s.current()
	if r == nil {
		return fmt.Errorf("signalling %s: it is not running", s.Name)
	}
	if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to %s: %w", sig, s.Name, err)
	}
	return nil
}

// Pause stops the process where it stands, and returns when none of its threads runs any
// more: one on another core may answer a request after the signal was sent.
func (s *Server) Pause() error {
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stopped, err := s.stopped()
		if stopped || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s runs on after SIGSTOP", s.Name)
}

// stopped tells whether all threads are.
func (s *Server) stopped() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.Pid()))
	if err != nil {
		return false, fmt.Errorf("%s: looking for its threads: %w", s.Name, err)
	}
	if len(threads) == 0 {
		return false, fmt.Errorf("%s: it has no threads any more", s.Name)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return false, fmt.Errorf("%s: looking at a thread: %w", s.Name, err)
		}
		_, state, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(state, "T") {
			return false, nil
		}
	}
	return true, nil
}

// clock is the file of its wall clock, which stays as it is over restarts.
func (s *Server) clock() string { return s.DataDir + ".clock" }

// SetClock has the server's wall clock be ahead of the machine's, or behind it.
func (s *Server) SetClock(ahead time.Duration) error { return clock.Set(s.clock(), ahead) }

// RunClock has it go faster, or slower, for so long (clock.Run).
func (s *Server) RunClock(faster float64, length time.Duration) error {
	return clock.Run(s.clock(), faster, length)
}

// Resume resumes the process.
func (s *Server) Resume() error { return s.Signal(syscall.SIGCONT) }

// Kill ends the process as kill -9 does and returns when it is gone.
func (s *Server) Kill() error {
	if s.current() == nil {
		return nil
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := s.Wait(10 * time.Second)
	return err
}

// Stop asks the process to end with SIGTERM and returns its exit code (-1 if a
// signal ended it) and the time that it took.
func (s *Server) Stop() (code int, took time.Duration, err error) {
	if s.current() == nil {
		return 0, 0, nil
	}
	start := time.Now()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	code, err = s.Wait(15 * time.Second)
	return code, time.Since(start), err
}

// Wait waits for the process to end by itself.
func (s *Server) Wait(atMost time.Duration) (code int, err error) {
	r := s.current()
	if r == nil {
		return 0, fmt.Errorf("waiting for %s to end: it is not running", s.Name)
	}
	if !r.ends(atMost) {
		return 0, fmt.Errorf("%s still runs after %v; log:\n%s", s.Name, atMost, s.LogTail(2000))
	}
	s.mu.Lock()
	if s.run == r {
		s.run = nil
	}
	s.mu.Unlock()
	var exit *exec.ExitError
	if r.err != nil && !errors.As(r.err, &exit) {
		return 0, fmt.Errorf("waiting for %s to end: %w", s.Name, r.err)
	}
	return r.cmd.ProcessState.ExitCode(), nil
}

// ends waits until the process has ended, in steps: time for which this process is stopped itself counts
// as one of them.
func (r *run) ends(atMost time.Duration) bool {
	const steps = 100
	for range steps {
		select {
		case <-r.exited:
			return true
		case <-time.After(atMost / steps):
		}
	}
	return false
}

// LogTail is the end of the server's log.
func (s *Server) LogTail(bytes int) string {
	text, err := os.ReadFile(filepath.Clean(s.LogFile))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-bytes):])
}

// Versions returns the release of a stoa server and the version of its cluster, as its page
// /version shows them.
func (s *Server) Versions() (release, cluster string, err error) {
	resp, err := http.Get(s.ClientURL + "/version")
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	var v struct {
		Release string `json:"stoa"`
		Cluster string `json:"stoacluster"`
	}
	err = json.NewDecoder(resp.Body).Decode(&v)
	return v.Release, v.Cluster, err
}
