package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asking has the test's own program ask for a password.
const asking = "STOACTL_TEST_ASKS"

// A password that is interrupted leaves a terminal that shows what is typed.
func TestInterruptedPassword(t *testing.T) {
	if os.Getenv(asking) != "" {
		silence()
		time.Sleep(time.Minute)
		return
	}
	terminal := openTerminal(t)
	shows := func() bool {
		state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return state.Lflag&unix.ECHO != 0
	}
	require.True(t, shows())
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInterruptedPassword$")
		cmd.Env, cmd.Stdin = append(os.Environ(), asking+"=1"), terminal
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return !shows() }, time.Minute, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(s))
		require.Error(t, cmd.Wait())
		require.Equal(t, s, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		require.True(t, shows(), "%v", s)
	}
}

// openTerminal opens a terminal that nobody sees.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here:", err)
	}
	t.Cleanup(func() { host.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(host.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(host.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	return terminal
}
