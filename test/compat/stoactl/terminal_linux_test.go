package stoactl

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/test/process"
)

// terminal is one whose other end is a test.
type terminal struct {
	master, slave *os.File

	mu    sync.Mutex
	shown strings.Builder
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	return &terminal{master: master, slave: slave}
}

// read keeps what is written to the terminal.
func (x *terminal) read() {
	b := make([]byte, 4096)
	for {
		n, err := x.master.Read(b)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.shown.Write(b[:n])
		x.mu.Unlock()
	}
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

func (x *terminal) resize(t *testing.T, width, height uint16) {
	t.Helper()
	require.NoError(t, unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

// On a terminal, top is a live screen that follows the terminal's size, ends with q, and leaves the
// terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	stoactl := build(t)
	s := process.StartT(t, process.Spec{Partitions: 2}).Servers[0]
	x := openTerminal(t)
	x.resize(t, 100, 30)
	before, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	require.NoError(t, err)
	cmd := exec.Command(stoactl, "top", "--interval=200ms", "--endpoints="+s.ClientURL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.slave, x.slave, x.slave
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go x.read()
	require.Eventually(t, func() bool { return strings.Count(x.text(), "PARTITION") >= 2 }, time.Minute, 10*time.Millisecond, "%q", x.text)
	require.True(t, strings.HasPrefix(x.text(), "\x1b[?1049h"), "%q", x.text())

	x.resize(t, 12, 3)
	narrow := "\x1b[Hcluster "
	require.Eventually(t, func() bool {
		text := x.text()
		last := text[strings.LastIndex(text, narrow):]
		return strings.Count(last, "\r\n") == 2 && strings.HasSuffix(last, "\x1b[J")
	}, time.Minute, 10*time.Millisecond, "%q", x.text)

	_, err = x.master.WriteString("q")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Eventually(t, func() bool { return strings.HasSuffix(x.text(), "\x1b[?25h\x1b[?1049l") }, time.Minute, 10*time.Millisecond)
	after, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.Equal(t, before, after)
}
