package memory

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestDefault(t *testing.T) {
	const machine = "MemTotal:       16384 kB\nMemFree:  1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64 // KiB
	}{
		"nothing is known": {nil, 0},
		"no group":         {map[string]string{"proc/meminfo": machine}, 16384},
		"version 2": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4194304\n"}, 4096},
		"version 2, its path is that outside of the container": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/../x\n",
			"sys/fs/cgroup/memory.max": "2097152\n"}, 2048},
		"version 1": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "5:cpu:/\n4:memory:/p/c\n0::/\n",
			"sys/fs/cgroup/memory/p/c/memory.limit_in_bytes": "1048576\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1024},
		"more than the machine has": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "99999999999\n"}, 16384},
		"damaged": {map[string]string{"proc/meminfo": "MemTotal:\n", "proc/self/cgroup": "x\n:memory\n4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "-7\n"}, 0},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want<<10/10*9, Default(root), name)
	}
}
