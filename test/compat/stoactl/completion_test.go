package stoactl

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// TestCompletion: a shell that completes a command's first argument gets what the cluster has.
func TestCompletion(t *testing.T) {
	t.Parallel()
	stoactl, err := process.Stoactl()
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	for _, key := range []string{"/a/b/1", "/a/b/2", "/a/c", "/a/c/d", "/b", "flat", "with space", "\xff"} {
		_, err := cli.Put(t.Context(), key, "")
		require.NoError(t, err)
	}
	for _, name := range []string{"queue", "quota"} {
		_, err := cli.Put(t.Context(), "/em/"+name, `return { scope = { "/q/" }, operations = { { op = "read", prefix = "/q/" } }, read = function() return "" end }`)
		require.NoError(t, err)
	}
	members, err := cli.MemberList(t.Context())
	require.NoError(t, err)
	member := members.Members[0]

	complete := func(endpoint string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), stoactl, append([]string{"__complete", "--endpoints=" + endpoint}, args...)...).Output()
		require.NoError(t, err)
		words, _, _ := strings.Cut(string(out), ":") // behind it is what the shell is to do with them
		return words
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"get", ""}, "/\nflat\n"},
		{[]string{"get", "/a/"}, "/a/b/\n/a/c\n/a/c/\n"},
		{[]string{"del", "/a/b/"}, "/a/b/1\n/a/b/2\n"},
		{[]string{"put", "f"}, "flat\n"},
		{[]string{"put", "flat", "/"}, ""},
		{[]string{"watch", "/none"}, ""},
		{[]string{"move-leader", ""}, fmt.Sprintf("%x\t%s\n", member.ID, member.Name)},
		{[]string{"extension", "show", "qu"}, "queue\nquota\n"},
		{[]string{"extension", "disable", "quo"}, "quota\n"},
	} {
		require.Equal(t, tc.want, complete(c.Servers[0].ClientURL, tc.args...), "%v", tc.args)
	}
	require.NoError(t, c.Servers[0].Kill())
	require.Empty(t, complete(c.Servers[0].ClientURL, "get", "/"), "an error is no word")
}
