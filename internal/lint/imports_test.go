package lint

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/stoa-kv/stoa/"

// A rule lists the packages that those below a directory must not import
// directly. Names that end in /... stand for everything below.
type rule struct {
	dir    string
	why    string
	never  []string
	except []string // directories below dir that are exempt
}

var (
	raftLibrary = "go.etcd.io/raft/v3/..."
	bbolt       = "go.etcd.io/bbolt/..."
	grpcLibrary = "google.golang.org/grpc/..."
	internals   = module + "internal/..."
	// Packages that would make two replicas differ, or a simulation not
	// repeat itself.
	world = []string{"net/...", "os/...", "math/rand/...", "crypto/rand", "syscall", "golang.org/x/sys/..."}
	clock = []string{"time"}
)

var rules = []rule{
	{dir: "", why: "nothing imports tests", never: []string{module + "test/..."}, except: []string{"test"}},
	{dir: "", why: "main packages are ends, not parts", never: []string{module + "cmd/..."}},
	{dir: "client", why: "the client knows only the API and etcd's client libraries", never: []string{internals}},
	{dir: "client/mirror", why: "a mirror's order is pure: clusters, time and identity are given to it",
		never: slices.Concat(world, clock, []string{grpcLibrary, "go.etcd.io/etcd/..."}), except: []string{"client/mirror/cluster", "client/mirror/worker"}},
	{dir: "client/compose/internal/commit", why: "the protocol of transactions is pure: clusters, time and names are given to it",
		never: slices.Concat(world, clock, []string{grpcLibrary, "go.etcd.io/etcd/...", module + "client/..."})},
	{dir: "client/commands", why: "the order of a queue is pure: clusters, time and identity are given to it",
		never: slices.Concat(world, clock, []string{grpcLibrary, "go.etcd.io/etcd/..."}), except: []string{"client/commands/queue"}},
	{dir: "extensions", why: "the recipes are data", never: []string{internals, module + "client/..."}},
	{dir: "api", why: "the API is a contract, not code", never: []string{internals}},

	{dir: "internal/rpc", why: "gRPC services know neither Raft nor the log nor bbolt", never: []string{
		raftLibrary, bbolt, module + "internal/wal", module + "internal/raftlog", module + "internal/replica",
		module + "internal/node", module + "internal/backend", module + "internal/transport", module + "internal/store"}},
	{dir: "internal/wal", why: "the log knows only bytes and group numbers", never: append([]string{internals, raftLibrary, grpcLibrary, bbolt}, "google.golang.org/protobuf/..."),
		except: nil},
	{dir: "internal/h2", why: "a gRPC server knows nothing of stoa", never: []string{internals}},
	{dir: "internal/memory", why: "the bound of memory knows nothing of what it bounds", never: []string{internals}},
	{dir: "internal/vfs", why: "the file system knows nothing of stoa", never: []string{internals}},
	{dir: "internal/apply", why: "what is applied must not depend on clock, network, file or chance", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/rehearsal", why: "a rehearsal is the same at every run", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/script", why: "Lua knows no clock, network, file or chance", never: slices.Concat(world, clock)},
	{dir: "internal/store", why: "the store knows neither watches nor leases nor Raft", never: slices.Concat(world, clock, []string{
		raftLibrary, grpcLibrary, bbolt, module + "internal/watch", module + "internal/lease", module + "internal/apply", module + "internal/backend"})},
	{dir: "internal/command", why: "what a log entry says is data", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/auth", why: "who may do what is a pure function", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/token", why: "tokens know nothing of stoa but its errors", never: []string{raftLibrary, grpcLibrary, bbolt, module + "internal/node", module + "internal/apply"}},
	{dir: "internal/password", why: "what matches is a pure function", never: slices.Concat(world, []string{internals})},
	{dir: "internal/tenant", why: "limits know nothing but keys and the clock that they are given", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt, module + "internal/node", module + "internal/watch"})},
	{dir: "internal/placement", why: "placement is a pure function", never: slices.Concat(world, clock, []string{internals})},
	{dir: "internal/load", why: "the load comes from counts and samples that it is given", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt, module + "internal/node", module + "internal/apply"})},
	{dir: "internal/check", why: "who differs is a pure function of what the members report", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt, internals})},
	{dir: "internal/balance", why: "a decision is a pure function of the load and the time", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt, module + "internal/node", module + "internal/apply"})},
	{dir: "internal/top", why: "what is shown is a pure function of what servers have answered", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt, internals})},
	{dir: "internal/membership", why: "membership is pure", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/sequencer", why: "the sequencer is pure", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt})},
	{dir: "internal/session", why: "the order of a session is pure", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt,
		module + "internal/node", module + "internal/replica", module + "internal/apply", module + "internal/rpc", module + "internal/watch"}),
		except: []string{"internal/session/host"}},
	{dir: "internal/session/host", why: "goroutines, timers and the stream are given to the sessions' host", never: slices.Concat(world, []string{raftLibrary, grpcLibrary, bbolt,
		module + "internal/node", module + "internal/rpc", module + "internal/transport", module + "internal/backend", module + "internal/wal"})},
	{dir: "internal/backup", why: "of which state a backup is follows from the stores alone", never: slices.Concat(world, clock, []string{raftLibrary, grpcLibrary, bbolt,
		module + "internal/node", module + "internal/replica", module + "internal/apply", module + "internal/backend"})},
	{dir: "internal/replica", why: "the replica is pure: disk, network and clock are given to it", never: slices.Concat(world, []string{grpcLibrary, bbolt,
		module + "internal/transport", module + "internal/backend", module + "internal/node", module + "internal/rpc"})},
	{dir: "internal/node", why: "a server doesn't know the services that stand in front of it", never: []string{module + "internal/rpc"}},
	{dir: "internal/watch", why: "the hub knows stores through interfaces of its own", never: []string{raftLibrary, bbolt,
		module + "internal/apply", module + "internal/node", module + "internal/backend", module + "internal/wal"}},
	{dir: "internal/transport", why: "the transport carries what it doesn't understand", never: []string{bbolt,
		module + "internal/apply", module + "internal/store", module + "internal/node", module + "internal/replica"}},
	{dir: "internal/config", why: "settings know nothing of the server", never: []string{internals}},
	{dir: "internal/incoming", why: "metadata know nothing of what they are for", never: []string{internals}},
	{dir: "internal/tracing", why: "spans know nothing of what they show", never: []string{internals}},
	{dir: "internal/audit", why: "the audit log knows nothing of the server", never: []string{raftLibrary, grpcLibrary, bbolt,
		module + "internal/node", module + "internal/rpc", module + "internal/apply", module + "internal/store"}},
	{dir: "internal/fault", why: "errors are shared by all packages", never: []string{internals}},
	{dir: "internal/gateway", why: "the gateway is a client of the services", never: []string{raftLibrary, bbolt,
		module + "internal/serve", module + "internal/node", module + "internal/rpc", module + "internal/store", module + "internal/transport"}},
	{dir: "internal/ui", why: "the page knows nothing but HTTP", never: []string{internals, module + "api/...", grpcLibrary, raftLibrary, bbolt}},
	{dir: "internal/serve", why: "ports know nothing of what is served", never: []string{raftLibrary, bbolt,
		module + "internal/node", module + "internal/rpc", module + "internal/store", module + "internal/transport"}},
	{dir: "internal/sidecar", why: "a sidecar is a client", never: []string{raftLibrary, bbolt,
		module + "internal/node", module + "internal/rpc", module + "internal/replica", module + "internal/apply", module + "internal/store", module + "internal/session/..."}},
	{dir: "cmd/stoactl", why: "stoactl is a client", never: []string{internals}, except: nil},
}

// allowed are single exceptions, each with its reason.
var allowed = map[string]string{
	"internal/wal " + module + "internal/vfs":          "the file system that can crash is how the log is tested",
	"internal/placement " + module + "internal/radix":  "a map of strings, as pure as what it is used for",
	"internal/tracing " + module + "internal/incoming": "a field of a request's metadata, of whichever request",
	"cmd/stoactl " + module + "internal/version":       "both programs have one version",

	"cmd/stoactl " + module + "internal/extension": "a file is verified as the server does it",
	"cmd/stoactl " + module + "internal/snapshot":  "a data directory is made as the server reads it",
	"cmd/stoactl " + module + "internal/top":       "what top shows is tested without servers and terminals",
	"cmd/stoactl " + module + "internal/rehearsal": "extensions are tried out on the server's own state machine",
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		for _, r := range rules {
			if !below(f.dir, r.dir) || slices.ContainsFunc(r.except, func(d string) bool { return below(f.dir, d) }) {
				continue
			}
			for _, imported := range f.imports {
				if forbidden(r.never, imported) && allowed[f.dir+" "+imported] == "" && imported != module+f.dir {
					t.Errorf("%s imports %s: %s", f.path, imported, r.why)
				}
			}
		}
	}
}

func forbidden(never []string, imported string) bool {
	return slices.ContainsFunc(never, func(n string) bool {
		if tree, ok := strings.CutSuffix(n, "/..."); ok {
			return imported == tree || strings.HasPrefix(imported, tree+"/")
		}
		return imported == n
	})
}

func below(dir, tree string) bool {
	return tree == "" || dir == tree || strings.HasPrefix(dir, tree+"/")
}

// source is one file that goes into a program: tests may import what they like.
type source struct {
	path, dir string
	imports   []string
}

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := source{path: rel, dir: path.Dir(rel)}
		for _, i := range parsed.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, name)
		}
		all = append(all, s)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}
