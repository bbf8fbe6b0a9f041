package operator

import (
	"context"
	"fmt"
	"os"
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
	const adds = "etcdctl --endpoints http://10.0.1.1:2379 member add"
	change, add, ok := strings.Cut(steps[0], adds)
	require.True(t, ok)
	b.eventually(change)
	b.eventually(adds + add) // with five seconds in between
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

func TestRunbookAnotherAddressOfAMember(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	steps := b.blocks("Another address of a member")
	require.Len(t, steps, 4)
	b.bootstrap()
	saved := b.keys(30)
	b.stop(3, syscall.SIGTERM)
	b.eventually(steps[0])
	b.movesTo(3, 5)
	b.run(steps[1])
	require.Equal(t, saved, b.keysAt(5, 0))
	list := b.run(steps[2])
	require.Contains(t, list, "http://"+b.net+"5:2379")
	require.Contains(t, list, "http://"+b.net+"5:2380")
	require.NotContains(t, list, b.net+"3:")
	b.stop(2, syscall.SIGTERM) // the one that has moved is needed now
	b.awaitWrite(1)

	b.run(steps[3])
	require.Eventually(t, func() bool { return strings.Contains(b.run(steps[2]), b.net+"2:2479") }, time.Minute, 100*time.Millisecond)
	require.Equal(t, b.keysAt(1, 0), b.keysAt(2, 0), "it serves at its old address, too")
	b.stop(1, syscall.SIGKILL)
	b.awaitWrite(5)
}

// Of one member the update comes first, and then its host and both of its ports are others.
func TestRunbookAnotherAddressOfTheOnlyMember(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	steps := b.blocks("Another address of a member")
	start := b.blocks("Lost majority")[3]
	b.run(strings.TrimRight(start, "\n") + ` \
  --initial-advertise-peer-urls http://10.0.1.1:2380 --initial-cluster s1=http://10.0.1.1:2380
`)
	saved := b.keysAt(1, 30)
	ports := strings.NewReplacer("10.0.1.5:2380", "10.0.1.5:2381", "$N:2380", "$N:2381")
	b.run(ports.Replace(strings.Replace(steps[0], `"s3"`, `"s1"`, 1)))
	b.stop(1, syscall.SIGTERM)
	b.movesTo(1, 5)
	b.run(ports.Replace(strings.Replace(steps[1], "name s3", "name s1", 1)))
	require.Equal(t, saved, b.keysAt(5, 0))
	list := b.run(strings.ReplaceAll(steps[2], "10.0.1.1", "10.0.1.5"))
	require.Contains(t, list, "http://"+b.net+"5:2381")
	require.NotContains(t, list, b.net+"1:")
	b.awaitWrite(5)
}

// movesTo has a machine get another number, and so another address.
func (b *book) movesTo(machine, other int) {
	b.t.Helper()
	require.NoError(b.t, os.Rename(fmt.Sprintf("%s/m%d", b.dir, machine), fmt.Sprintf("%s/m%d", b.dir, other)))
}
