package memory

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Default is the limit of a server that was given none, in bytes: nine tenths of the memory of
// its control group, or of the machine if that has less. The rest is for the kernel: the
// buffers of sockets and some of the state file count for a group. 0: neither is known.
//
// root is the file system's root.
func Default(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	for _, known := range [...]int64{ofMachine(root), ofGroups(root)} {
		if known > 0 {
			limit = min(limit, known)
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit / 10 * 9
}

// ofMachine reads the memory of the machine; 0: unknown.
func ofMachine(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// ofGroups reads the least limit of the process' control group and those around it; 0: none.
// In a container, its group is usually mounted as the root of all, whatever its path is outside:
// the root is therefore looked at in any case.
func ofGroups(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(0)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() { // HIERARCHY:CONTROLLERS:PATH
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) < 3 {
			continue
		}
		switch {
		case f[1] == "": // version 2
			least = lesser(least, leastAbove(root, "sys/fs/cgroup", f[2], "memory.max"))
		case strings.Contains(","+f[1]+",", ",memory,"):
			least = lesser(least, leastAbove(root, "sys/fs/cgroup/memory", f[2], "memory.limit_in_bytes"))
		}
	}
	return least
}

// leastAbove is the least limit in a group's directory and those above it, up to the mount.
func leastAbove(root fs.FS, mount, group, file string) int64 {
	least := int64(0)
	for dir := path.Join("/", group); ; dir = path.Dir(dir) {
		if text, err := fs.ReadFile(root, path.Join(mount, dir, file)); err == nil {
			least = lesser(least, parseLimit(string(text)))
		}
		if dir == "/" {
			return least
		}
	}
}

// parseLimit is 0 for "max" and for version 1's way to say it, the largest number of pages.
func parseLimit(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n >= math.MaxInt64>>1 {
		return 0
	}
	return n
}

// lesser is the lesser one of two limits, of which 0 is none.
func lesser(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
