package region

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// aloneVar is set in the environment of a program that Alone has started.
const aloneVar = "STOA_TEST_ALONE"

// Alone runs this program once more, in a network namespace and with mounts of its own, and ends with its exit
// code. There it returns at once. main, or TestMain, calls it first.
func Alone() error {
	if os.Getenv(aloneVar) != "" {
		return nil
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), aloneVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	case err != nil:
		return fmt.Errorf("running in a network namespace: %w", err)
	}
	os.Exit(0)
	return nil
}
