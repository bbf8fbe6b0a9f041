package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/rehearsal"
)

// counted matches the counts that change with the version of the language.
var counted = regexp.MustCompile(`\d+( of \d+)? steps, \d+( of \d+)? bytes|"steps":\d+,"bytes":\d+`)

// The stories in testdata/extension:
//
//	file NAME      make a file of what is below
//	stoactl        run each line below; < NAME gives it a file as stdin
func TestExtensionStories(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "extension"), func(t *testing.T, path string) {
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				require.NoError(t, os.WriteFile(filepath.Join(dir, d.CmdArgs[0].Key), []byte(d.Input+"\n"), 0o600))
				return ""
			case "stoactl":
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					out.WriteString(inDir(t, dir, line))
				}
				return counted.ReplaceAllString(out.String(), "(steps and bytes)")
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func inDir(t *testing.T, dir, line string) string {
	line, from, _ := strings.Cut(line, " < ")
	args, err := words(line)
	require.NoError(t, err)
	stdin := ""
	if from != "" {
		b, err := os.ReadFile(filepath.Join(dir, from))
		require.NoError(t, err)
		stdin = string(b)
	}
	t.Chdir(dir)
	code, out, errs := call(stdin, nil, args...)
	if code != 0 {
		errs += fmt.Sprintf("status %d\n", code)
	}
	return out + errs
}

func TestExtensionKeys(t *testing.T) {
	f, addr := startFake(t)
	file := filepath.Join(t.TempDir(), "queue.lua")
	require.NoError(t, os.WriteFile(file, []byte("return {}"), 0o600))
	ask := func(args ...string) any {
		code, out, errs := call("source", nil, append([]string{"extension", "--endpoints=" + addr}, args...)...)
		require.Zero(t, code, errs)
		require.True(t, strings.HasPrefix(out, "OK\n"), out)
		return f.last
	}
	for _, tc := range []struct{ args, key, value string }{
		{"register queue " + file, "/em/queue", "return {}"},
		{"register queue -", "/em/queue", "source"},
		{"ack queue", "/em/queue/ack", ""},
		{"ack queue --once", "/em/queue/ack", "once"},
		{"enable queue", "/em/queue/state", "enabled"},
		{"disable queue", "/em/queue/state", "disabled"},
	} {
		p := ask(strings.Fields(tc.args)...).(*pb.PutRequest)
		require.Equal(t, []string{tc.key, tc.value}, []string{string(p.Key), string(p.Value)}, tc.args)
	}
	require.Equal(t, "/em/queue/ack", string(ask("unack", "queue").(*pb.DeleteRangeRequest).Key))
	require.Equal(t, "/em/queue", string(ask("remove", "queue").(*pb.DeleteRangeRequest).Key))
	code, _, errs := call("", nil, "extension", "register", "a/b", file, "--endpoints="+addr)
	require.Equal(t, exitBadArgs, code)
	require.Contains(t, errs, "only letters")
}

func TestClientAndLeaseGoWithEveryRequest(t *testing.T) {
	f, addr := startFake(t)
	for _, args := range []string{"get a", "put a b --lease 0", "del a", "txn"} {
		code, _, errs := call("\n\n\n", []string{"STOACTL_CLIENT_ID=alice"}, append(strings.Fields(args), "--endpoints="+addr)...)
		require.Zero(t, code, errs)
		require.Equal(t, []string{"alice"}, f.metadata.Get("stoa-client-id"), args)
		require.Empty(t, f.metadata.Get(metadataLease))
	}
	code, _, errs := call("", nil, "get", "a", "--lease", "1f", "--client-id", "bob", "--endpoints="+addr)
	require.Zero(t, code, errs)
	require.Equal(t, []string{"1f"}, f.metadata.Get(metadataLease))
	require.Equal(t, []string{"bob"}, f.metadata.Get("stoa-client-id"))
	code, _, errs = call("", nil, "get", "a", "--lease", "one", "--endpoints="+addr)
	require.Equal(t, exitBadArgs, code)
	require.Contains(t, errs, "bad lease ID")
}

func TestExtensionsAreListedByTheirKeys(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "queue.lua"))
	require.NoError(t, err)
	kv := func(key, value string, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: rev}
	}
	all := gather([]*mvccpb.KeyValue{
		kv("/em/.limits", "{}", 2), kv("/em/queue", string(source), 5), kv("/em/queue/ack/bob", "once", 7), kv("/em/queue/ack/eve", "", 8),
		kv("/em/queue/owner", "alice", 5), kv("/em/queue/state", "disabled: by alice", 9),
		kv("/em/newer", "return what", 6), kv("/em/orphan/owner", "x", 6),
	})
	var out strings.Builder
	a := &app{out: &out, errs: &out, o: globals{form: "simple"}}
	require.NoError(t, a.show(extensionsView(all)))
	require.Equal(t, "newer, , enabled, ?, ?, 11, 6\nqueue, alice, disabled: by alice, put /queue/push; put /queue/pop, /queue/, 608, 5\n", out.String())
	out.Reset()
	require.NoError(t, a.show(extensionView(all[1])))
	require.Equal(t, "-- name: queue\n-- owner: alice\n-- state: disabled: by alice\n-- subscriptions: put /queue/push; put /queue/pop\n"+
		"-- scope: /queue/\n-- acknowledged: bob (once); eve\n-- revision: 5\n"+string(source), out.String())
}

// FuzzScripts: every script that can be parsed can be carried out.
func FuzzScripts(f *testing.F) {
	f.Add("get /a\n\n--client bob --lease 1f put /a b\nwatch --prefix /a/\nexpire 1f\ntxn\n  mod(\"/a\") > \"0\"\n\n  put /a 1\n\n  get --prefix /\n")
	f.Add("# nothing\ngrant 5\nput \"a\\x00b\" 'c d' --lease=5\ndel --from-key \"\"")
	f.Fuzz(func(_ *testing.T, text string) {
		requests, err := readScript(text, "script", rehearsal.Caller{})
		if err != nil {
			return
		}
		r := rehearsal.New()
		to := reporter{printer: &printer{io.Discard, false}, usage: true}
		for _, s := range requests {
			to.carryOut(r, s, false)
		}
		to.keys(r)
	})
}
