package syscalls

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const childVar = "STOA_TEST_SYSCALLS_CHILD"

func TestMain(m *testing.M) {
	Main()
	if path := os.Getenv(childVar); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

// child writes a file and renames it for each line that it gets, and says what went wrong.
func child(path string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f, err := os.Create(path + ".new")
		if err == nil {
			n := 0
			if n, err = f.WriteString(lines.Text()); err == nil && n < len(lines.Text()) {
				err = errors.New("short")
			}
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		fmt.Println(err)
	}
	os.Exit(0)
}

// ask has a child write a text under a plan, and returns what it says, "" if it was killed.
func ask(t *testing.T, path, text string, p Plan) (string, []Call) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	fmt.Fprintln(in, "first") // so that it is up
	require.True(t, lines.Scan())
	p.Path = filepath.Dir(path)
	tap, err := Attach(cmd.Process.Pid, p)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	fmt.Fprintln(in, text)
	said := ""
	if lines.Scan() {
		said = lines.Text()
	}
	calls := tap.Detach()
	in.Close()
	_ = cmd.Wait()
	return said, calls
}

func TestKillAtEachCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	said, calls := ask(t, path, "second", Plan{Kinds: Changes})
	require.Equal(t, "<nil>", said)
	var kinds []string
	for _, c := range calls {
		kinds = append(kinds, c.Kind)
	}
	require.Equal(t, []string{Create, Write, Sync, Rename}, kinds)
	for i := range calls {
		for _, after := range []bool{false, true} {
			said, _ := ask(t, path, "second", Plan{Kinds: Changes, Skip: i, Kill: true, After: after})
			require.Empty(t, said)
			want := "first"
			if i == len(calls)-1 && after {
				want = "second"
			}
			have, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, string(have), "%v, after %v", calls[i], after)
		}
	}
}

func TestFailAtACall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for kind, call := range map[string]string{Create: "open", Write: "write", Sync: "sync", Rename: "rename"} {
		said, _ := ask(t, path, "second", Plan{Kinds: []string{kind}, Errno: syscall.ENOSPC})
		require.Contains(t, said, call)
		require.Contains(t, said, "no space left on device")
	}
	began := time.Now()
	said, _ := ask(t, path, strings.Repeat("x", 100), Plan{Kinds: []string{Write}, Short: true, DelayMillis: 100})
	require.Equal(t, "<nil>", said, "os.File writes the rest")
	require.Greater(t, time.Since(began), 100*time.Millisecond)
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, have, 100)
}
