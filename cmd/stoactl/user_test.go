package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// typist takes some time before each line.
type typist struct {
	lines []string
	pause time.Duration
}

func (u *typist) Read(b []byte) (int, error) {
	if len(u.lines) == 0 {
		return 0, io.EOF
	}
	time.Sleep(u.pause)
	n := copy(b, u.lines[0])
	u.lines = u.lines[1:]
	return n, nil
}

// The time that a command may take isn't that of who types a password.
func TestPasswordsAreTypedWithoutALimit(t *testing.T) {
	_, addr := startFake(t)
	const limit = 1500 * time.Millisecond
	for command, want := range map[string]string{"user add u": "User u created\n", "user passwd u": "Password updated\n"} {
		var out, errs bytes.Buffer
		a := &app{in: bufio.NewReader(&typist{[]string{"secret\n", "secret\n"}, limit * 3 / 5}), out: &out, errs: &errs}
		args := append(strings.Fields(command), "--endpoints", addr, "--command-timeout", limit.String())
		require.Zero(t, a.run(args, nil), "%s: %s", command, &errs)
		require.Equal(t, want, out.String())
	}
}
