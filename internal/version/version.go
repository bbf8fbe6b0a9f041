// Package version says which stoa this is, which etcd it stands in for, and which levels of
// the formats it knows ([Level]; docs/versions.md lists what is versioned where).
//
// Three numbers are independent of each other: the release of stoa, the etcd that clients
// see, and the cluster's version, which is a [Level] and shown as the release that brought it.
//
// It imports nothing of stoa.
package version

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Stoa is the version of this program.
const Stoa = "0.7.0"

// Etcd is the version of the etcd API that this server provides; Cluster is
// the cluster version that etcd's clients see, which leaves the patch level out;
// Storage is the version of the schema of the backend file.
const (
	Etcd    = "3.7.3"
	Cluster = "3.7.0"
	Storage = "3.7.0"
)

// Commit is the commit that the program was built from, as far as the Go
// toolchain has recorded it.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return commit + dirty
}

// Print writes the output of a program's --version. The line with etcd's
// version is the one that etcd's own tests look for to learn a server's
// version.
func Print(w io.Writer, program string) {
	fmt.Fprintf(w, "%s Version: %s\n", program, Stoa)
	fmt.Fprintf(w, "etcd Version: %s\n", Etcd)
	fmt.Fprintf(w, "Cluster Versions: %v to %v\n", Oldest, Newest)
	fmt.Fprintf(w, "Git SHA: %s\n", Commit())
	fmt.Fprintf(w, "Go Version: %s\n", runtime.Version())
	fmt.Fprintf(w, "Go OS/Arch: %s/%s\n", runtime.GOOS, runtime.GOARCH)
}
