package kube

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// component is a process of Kubernetes' control plane. It is started again when it ends, as by a kubelet:
// those that lose their leases end.
type component struct {
	binary string
	args   []string
	log    *os.File

	mu  sync.Mutex
	cmd *exec.Cmd // of the latest start; nil before
}

// run runs a component until the test ends.
func (k *apiserver) run(name string, args ...string) *component {
	k.t.Helper()
	log, err := os.Create(filepath.Join(k.dir, name+".log"))
	require.NoError(k.t, err)
	c := &component{binary: filepath.Join(k.root, "bin", name), args: args, log: log}
	require.FileExists(k.t, c.binary, "run `make test-kube`")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.keep(ctx) })
	k.t.Cleanup(func() {
		cancel()
		running.Wait()
		c.showLog(k.t, name)
		log.Close()
	})
	return c
}

func (c *component) keep(ctx context.Context) {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, c.binary, c.args...)
		cmd.Stdout, cmd.Stderr = c.log, c.log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		c.mu.Lock()
		err := cmd.Start()
		c.cmd = cmd
		c.mu.Unlock()
		if err == nil {
			_ = cmd.Wait()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// kill has the component end, and start again.
func (c *component) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.Process.Kill()
}

func (c *component) showLog(t *testing.T, name string) {
	if text, err := os.ReadFile(c.log.Name()); err == nil && t.Failed() {
		t.Logf("the log of %s ends with\n%s", name, text[max(0, len(text)-4000):])
	}
}
