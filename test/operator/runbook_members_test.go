package operator

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually runs a block that the cluster refuses at first, since its members have not been connected
// for long enough.
func (b *book) eventually(text string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		out, err := b.command(text, machinesOf(text)[0]).CombinedOutput()
		require.True(b.t, err == nil || passing(&failed{string(out)}), "%s\n%s", text, out)
		return err == nil
	}, time.Minute, 200*time.Millisecond, text)
}

type failed struct{ text string }

func (f *failed) Error() string { return f.text }

func (b *book) memberCount(at int) int {
	b.t.Helper()
	r, err := b.client(at).MemberList(b.t.Context())
	require.NoError(b.t, err)
	return len(r.Members)
}

// awaitWrite writes through a machine, once there is a leader.
func (b *book) awaitWrite(machine int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
		defer cancel()
		_, err := b.client(machine).Put(ctx, "/after", "v")
		return err == nil
	}, time.Minute, 100*time.Millisecond)
}

// gone waits for a server that ends by itself.
func (b *book) gone(machine int) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.running[machine].Wait() }()
	select {
	case err := <-done:
		require.NoError(b.t, err)
	case <-time.After(30 * time.Second):
		require.Fail(b.t, "the removed member doesn't end")
	}
	delete(b.running, machine)
}

func TestRunbookReplacingAMember(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	steps := b.blocks("Replacing a member")
	require.Len(t, steps, 3)
	b.bootstrap()
	saved := b.keys(30)
	b.stop(3, syscall.SIGKILL)
	change, add, ok := strings.Cut(steps[0], "etcdctl member add")
	require.True(t, ok)
	b.eventually(change)
	b.eventually("export ETCDCTL_ENDPOINTS=http://10.0.1.1:2379\netcdctl member add" + add) // with five seconds in between
	b.run(steps[1])
	require.Equal(t, saved, b.keysAt(4, 0))
	require.Contains(t, b.run(steps[2]), b.net+"4:2379")
	b.stop(1, syscall.SIGKILL) // the new one is needed now
	b.awaitWrite(4)
}

func TestRunbookLostMajority(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	steps := b.blocks("Lost majority")
	require.Len(t, steps, 7)
	b.bootstrap()
	saved := b.keysAt(1, 30)
	for m := 1; m <= 3; m++ {
		b.stop(m, syscall.SIGKILL)
	}
	b.run(steps[0])
	b.run(steps[1])
	require.Equal(t, 1, strings.Count(b.run(steps[2]), "\n"))
	require.Equal(t, saved, b.keysAt(1, 0))
	b.stop(1, syscall.SIGTERM)
	b.run(steps[3])
	b.eventually(steps[4])
	b.run(steps[5])
	b.run(steps[6])
	require.Equal(t, saved, b.keysAt(2, 0))
	require.Equal(t, 2, b.memberCount(1))
	for i := range steps[4:] { // s3 likewise
		text := strings.NewReplacer("s2 ", "s3 ", "10.0.1.2:2380", "10.0.1.3:2380", "N=2", "N=3").Replace(steps[4+i])
		if i == 2 {
			text = strings.Replace(text, "s2=http://10.0.1.3:2380", "s2=http://10.0.1.2:2380,s3=http://10.0.1.3:2380", 1)
		}
		if i == 0 {
			b.eventually(text)
		} else {
			b.run(text)
		}
	}
	b.stop(1, syscall.SIGKILL)
	require.Equal(t, saved, b.keysAt(3, 0))
}

func TestRunbookMovingToOtherMachines(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	steps := b.blocks("Moving to other machines")
	require.Len(t, steps, 3)
	b.bootstrap()
	saved := b.keys(30)
	for old := 1; old <= 3; old++ {
		name, asked := string(rune('0'+old+3)), string(rune('0'+old%3+1)) // of machines that stay
		if old == 3 {
			asked = "4"
		}
		for i, text := range steps {
			text = strings.NewReplacer(
				"10.0.1.2:2379", "10.0.1."+asked+":2379", "s4", "s"+name, "10.0.1.4", "10.0.1."+name, "N=4", "N="+name, "id s1", "id s"+string(rune('0'+old)),
			).Replace(text)
			if i == 0 {
				b.eventually(text)
			} else {
				b.run(text)
			}
		}
		b.gone(old)
	}
	require.Equal(t, saved, b.keysAt(4, 0))
	require.Equal(t, 3, b.memberCount(5))
	b.stop(6, syscall.SIGKILL)
	b.awaitWrite(4)
}
