package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// on runs a block on one server, in place of the one at 127.0.0.1:2379.
func (b *book) on(s *process.Server, text string) string {
	b.t.Helper()
	text = strings.NewReplacer("http://127.0.0.1:2379", s.ClientURL,
		"curl -N ", "curl -sN -m 2 ", // it would go on for ever
	).Replace(text)
	cmd := exec.Command("bash", "-uc", text)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(b.dir, "bin")+":"+os.Getenv("PATH"), "STOACTL_ENDPOINTS="+s.ClientURL)
	out, err := cmd.CombinedOutput()
	if !strings.Contains(text, " -m 2 ") { // curl's status for that
		require.NoError(b.t, err, "%s\n%s", text, out)
	}
	require.NotContains(b.t, string(out), "Error:", text)
	return string(out)
}

// TestBlocksOfPartitions: the commands that move keys, and change the number of partitions.
func TestBlocksOfPartitions(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	blocks := b.blocks("Partitions")
	require.Len(t, blocks, 2)
	s := process.StartT(t, process.Spec{Partitions: 4}).Servers[0]
	out := b.on(s, blocks[0])
	require.Contains(t, out, `"/registry/leases/" moves to partition 2`)
	require.Contains(t, out, `"/jobs/" pinned to partition 3`)
	require.Contains(t, out, `"/jobs/" unpinned`)
	require.Equal(t, "8 partitions\n2 partitions\n", b.on(s, blocks[1]))
}

// TestBlocksOfGateway: JSON over HTTP.
func TestBlocksOfGateway(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the commands need curl")
	}
	b := openBook(t)
	blocks := b.blocks("JSON over HTTP")
	require.Len(t, blocks, 1)
	out := b.on(process.StartT(t, process.Spec{}).Servers[0], blocks[0])
	require.Regexp(t, regexp.MustCompile(`(?s)"kvs":\[\{"key":"Zm9v".*"value":"YmFy"`), out)
	require.Contains(t, out, `"created":true`)
}

// TestBlocksOfQuotas: of a role and a prefix, by root.
func TestBlocksOfQuotas(t *testing.T) {
	t.Parallel()
	b := openBookOf(t, "security.md")
	blocks := b.blocks("Quotas")
	require.Len(t, blocks, 1)
	s := process.StartT(t, process.Spec{}).Servers[0]
	b.on(s, `stoactl user add root:ROOT-PASSWORD && stoactl role add root && stoactl user grant-role root root
stoactl role add app && stoactl role grant-permission app readwrite --prefix /app/ && stoactl auth enable`)
	out := b.on(s, blocks[0])
	require.Contains(t, out, "50000")
	require.Contains(t, out, "/app/tmp/")
}
