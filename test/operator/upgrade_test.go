package operator

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clusterVersion is what a machine's /version shows.
func (b *book) clusterVersion(text string) string {
	b.t.Helper()
	var v struct {
		Cluster string `json:"stoacluster"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.run(text)), &v))
	return v.Cluster
}

func (b *book) awaitVersion(text, want string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.clusterVersion(text) == want }, time.Minute, 100*time.Millisecond)
}

// replaceOne stops the server of a machine, and runs a block that starts it again.
func (b *book) replaceOne(machine int, text string) {
	b.t.Helper()
	cmd := b.running[machine]
	require.NoError(b.t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(b.t, cmd.Wait())
	b.serve(machine, server.ReplaceAllString(text, "exec $1 "))
	b.await()
}

// An operator who copies the commands of the runbooks upgrades a cluster and lowers its
// version. Both programs are the present one; make test-upgrade has two.
func TestRunbooksOfUpgrades(t *testing.T) {
	b := openBook(t)
	upgrade, downgrade := b.blocks("Upgrade"), b.blocks("Downgrade")
	require.Len(t, upgrade, 3)
	require.Len(t, downgrade, 2)
	start := upgrade[1]
	b.run(strings.TrimRight(start, "\n") + ` \
  --initial-advertise-peer-urls http://10.0.1.$N:2380 --partitions 2 \
  --initial-cluster s1=http://10.0.1.1:2380,s2=http://10.0.1.2:2380,s3=http://10.0.1.3:2380
`)
	version := "curl -s http://10.0.1.1:2379/version\n"
	b.awaitVersion(version, "0.7.0")
	saved := b.keys(30)

	require.Contains(t, b.run(upgrade[0]), `"stoacluster":"0.7.0"`)
	for m := 1; m <= 3; m++ {
		b.replaceOne(m, start)
		require.Equal(t, 3, strings.Count(b.run(upgrade[2]), "is healthy"))
	}
	require.Equal(t, saved, b.keys(0))

	out := b.run(downgrade[0])
	require.Contains(t, out, "Downgrade validate success, cluster version 0.7.0")
	require.Contains(t, out, "Downgrade enable success, cluster version 0.6.0")
	b.awaitVersion(version, "0.6.0")
	for m := 1; m <= 3; m++ {
		log := b.dir + "/m" + string(rune('0'+m)) + "/log"
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(text), "The server is ready to downgrade")
		}, time.Minute, 50*time.Millisecond, log)
		b.replaceOne(m, start)
	}
	require.Equal(t, "0.6.0", b.clusterVersion(version), "it is held there")
	require.Contains(t, b.run(downgrade[1]), "Downgrade cancel success")
	b.awaitVersion(version, "0.7.0")
	require.Equal(t, saved, b.keys(0))

	// etcd's offline tool finds nothing to migrate, and does no harm.
	b.stopServers()
	said, err := b.command("etcdutl migrate --data-dir /var/lib/stoa --target-version 3.6", 1).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "wal: file not found")
	b.run(start)
	require.Equal(t, saved, b.keys(0))
}
