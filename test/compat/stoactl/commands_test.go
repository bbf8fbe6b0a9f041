package stoactl

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// command is a row: a command line, and its result.
type command struct {
	args  string // "" is an empty argument, SERVER the endpoint, LEASE the lease that was granted last
	stdin string
	env   string
	code  int // the exit status
	lines int // it runs until it has printed so many lines, and is killed then
	// own: the text is about the program itself.
	own bool
	// differs is the reason for which etcdctl's status differs.
	differs string
	etcdctl int
}

// commands leave both servers in the same state.
var commands = []command{
	{args: "", own: true},
	{args: "nonsense", code: 1},
	{args: "--nonsense", code: 1},
	{args: "help", own: true},
	{args: "help get", own: true},
	{args: "get --help", own: true},
	{args: "lease", own: true},
	{args: "member", own: true},
	{args: "endpoint", own: true},
	{args: "version", own: true},
	{args: "completion bash", own: true},

	{args: "put a 1"},
	{args: "put a", stdin: "from stdin\n"},
	{args: "put a", code: 128},
	{args: "put", code: 128},
	{args: `put "" v`, code: 1},
	{args: `put empty ""`},
	{args: "put a 1 --lease xyz", code: 128},
	{args: "put a 1 --lease 77", code: 1},
	{args: "put a --ignore-value"},
	{args: "put none --ignore-value", code: 1},
	{args: "put a 1 --ignore-value", code: 128},
	{args: "put a --ignore-lease", stdin: "x"},
	{args: "put a 2 --prev-kv"},
	{args: "put a 3 --prev-kv -w json"},
	{args: "put a 4 --prev-kv -w fields"},
	{args: "put a 4 --prev-kv --hex"},
	{args: "put a 5 -w table", code: 4},
	{args: "put a 6 -w protobuf --prev-kv"},
	{args: "put a 7 -w bad", code: 4},
	{args: `put a 8 -w ""`, code: 4},
	{args: "put a -- -v"},
	{args: "put -- b -v"},
	{args: "put a 9 --nope", code: 1},

	{args: "get", code: 128},
	{args: "get a"},
	{args: "get none"},
	{args: "get a b"},
	{args: "get a --prefix b", code: 128},
	{args: "get a --prefix --from-key", code: 128},
	{args: `get "" --prefix`},
	{args: `get "" --from-key`},
	{args: "get a --from-key"},
	{args: `get ""`, code: 1},
	{args: "get a --keys-only"},
	{args: "get a --keys-only --count-only", code: 128},
	{args: "get a --count-only", code: 128},
	{args: "get a --count-only -w fields"},
	{args: "get a --print-value-only"},
	{args: "get a --print-value-only -w json", code: 128},
	{args: "get a --order up", code: 4},
	{args: "get a --order ascend"},
	{args: "get a --sort-by size", code: 4},
	{args: `get "" --sort-by value --order DESCEND --prefix`},
	{args: `get "" --sort-by MODIFY --order DESCEND --prefix --limit 2`},
	{args: "get a --consistency x", code: 4},
	{args: "get a --consistency s"},
	{args: "get a --limit x", code: 1},
	{args: "get a --rev 2"},
	{args: "get a --rev 1000", code: 1},
	{args: "get a --rev -1"},
	{args: "get a --min-create-rev 5 --max-create-rev 3", code: 4},
	{args: "get a --min-mod-rev 5 --max-mod-rev 3", code: 4},
	{args: "get a --min-mod-rev 5"},
	{args: `get "" --max-create-rev 2 --prefix`},
	{args: "get a -w json"},
	{args: "get a -w fields"},
	{args: "get a -w table", code: 4},
	{args: "get a -w protobuf"},
	{args: "get a --hex"},
	{args: "get a --hex -w fields"},
	{args: "get a --hex -w json"},
	{args: "get a --stream"},
	{args: "get a --nope", code: 1},
	{args: "get a --debug=maybe", code: 1},
	{args: "get a", env: "ETCDCTL_WRITE_OUT=json"},
	{args: "get a", env: "ETCDCTL_WRITE_OUT=bad", code: 4},
	{args: "get a", env: "ETCDCTL_NOSUCH=1"},

	{args: "del", code: 128},
	{args: "del a b c", code: 128},
	{args: "del none"},
	{args: "del b"},
	{args: "del b c --range"},
	{args: "del a --prefix --from-key", code: 128},
	{args: "del a b --prefix", code: 128},
	{args: "put d 1"},
	{args: "put d1 1"},
	{args: "del d --prefix --prev-kv"},
	{args: "put d 1"},
	{args: "del d --prev-kv -w json"},
	{args: "put d 1"},
	{args: "del d --prev-kv -w fields"},
	{args: "put d 1"},
	{args: "del d --prev-kv -w protobuf"},
	{args: "del none -w table", code: 4},

	{args: "txn", code: 3},
	{args: "txn extra", code: 128},
	{args: "txn", stdin: "\n", code: 3},
	{args: "txn", stdin: "\n\n", code: 3},
	{args: "txn", stdin: "\n\n\n"},
	{args: "txn -i", stdin: "\n\n\n"},
	{args: "txn", stdin: "mod(\"a\") > \"0\"\n\nput b 1\n\nput b 2\n\n"},
	{args: "txn", stdin: "mod(\"a\") > \"0\"\n\nput b 1\n\nput b 2\n", code: 3},
	{args: "txn", stdin: "mod(\"a\") > \"0\"\n\nput b 1", code: 3},
	{args: "txn", stdin: "mod(\"a\") = \"0\"\n\nput b 1\n\nput b 2\n\n"},
	{args: "txn -w json", stdin: "mod(\"a\") > \"0\"\n\nget a\nput b \"x y\"\ndel none\n\nput b 2\n\n"},
	{args: "txn -w fields", stdin: "mod(\"a\") > \"0\"\n\nget a\nput b 'x y'\ndel none\n\nput b 2\n\n"},
	{args: "txn -w protobuf", stdin: "mod(\"a\") > \"0\"\n\nget a\n\n\n"},
	{args: "txn -w table", stdin: "\n\n\n", code: 4},
	{args: "txn", stdin: "size(\"a\") > \"0\"\n\n\n\n", code: 3},
	{args: "txn", stdin: "mod(\"a\") > \"x\"\n\n\n\n", code: 3},
	{args: "txn", stdin: "mod(a) > \"0\"\n\n\n\n", code: 3},
	{args: "txn", stdin: "val(\"a\") = \"-v\"\n\nget a\n\n\n"},
	{args: "txn", stdin: "version(\"a\") != \"0\"\n\nget a\n\n\n"},
	{args: "txn", stdin: "c(\"a\") < \"3\"\n\nget a\n\n\n"},
	{args: "txn", stdin: "\nincr a\n\n\n", code: 3},
	{args: "txn", stdin: "\nget\n\n\n", code: 3},
	{args: "txn", stdin: "\nget a --nope\n\n\n", code: 3},
	{args: "txn", stdin: "\nput a\n\n\n", code: 128},
	{args: "txn", stdin: "\nput a 1 --lease zz\n\n\n", code: 128},
	{args: "txn", stdin: "\nget a --order bad\n\n\n", code: 4},
	{args: "txn", stdin: "\nget a --consistency bad\n\n\n", code: 4},
	{args: "txn", stdin: "\nput a 1\nput a 2\n\n\n", code: 1},

	{args: "lease grant", code: 128},
	{args: "lease grant soon", code: 128},
	{args: "lease grant 10 20", code: 128},
	{args: "lease grant 100000000000", code: 1},
	{args: "lease grant 300"},
	{args: "put leased 1 --lease LEASE"},
	{args: "lease timetolive LEASE --keys"},
	{args: "lease timetolive LEASE --keys -w json"},
	{args: "lease timetolive LEASE --keys -w fields"},
	{args: "lease keep-alive LEASE --once"},
	{args: "lease keep-alive LEASE --once -w json"},
	{args: "lease keep-alive LEASE --once -w fields"},
	{args: "lease keep-alive LEASE", lines: 1},
	{args: "lease list"},
	{args: "lease list -w json"},
	{args: "lease list -w fields --hex"},
	{args: "lease list -w table", code: 4},
	{args: "lease revoke LEASE"},
	{args: "get leased"},
	{args: "lease grant 300 -w json"},
	{args: "lease grant 300 -w fields"},
	{args: "lease revoke", code: 128},
	{args: "lease revoke xyz", code: 128},
	{args: "lease revoke 77", code: 1},
	{args: "lease timetolive", code: 128},
	{args: "lease timetolive xyz", code: 128},
	{args: "lease timetolive 77"},
	{args: "lease timetolive 77 -w json"},
	{args: "lease timetolive 77 -w fields"},
	{args: "lease keep-alive", code: 128},
	{args: "lease keep-alive xyz", code: 128},
	{args: "lease keep-alive 77"},
	{args: "lease keep-alive 77 -w json"},
	{args: "lease keep-alive 77 --once", code: 2},

	{args: "member list"},
	{args: "member list --consistency s"},
	{args: "member list --consistency x", code: 4},
	{args: "member list -w json"},
	{args: "member list -w json --hex"},
	{args: "member list -w fields"},
	{args: "member list -w fields --hex"},
	{args: "member list -w table"},
	{args: "member list -w protobuf", own: true},

	{args: "member add", code: 128},
	{args: "member add x", code: 128},
	{args: "member remove", code: 128},
	{args: "member remove x", code: 128},
	{args: "member update", code: 128},
	{args: "member promote x", code: 128},

	{args: "endpoint hashkv", own: true},
	{args: "endpoint hashkv --cluster --rev 2 -w json", own: true},
	{args: "endpoint hashkv --rev 1000", code: 1},
	{args: "endpoint hashkv -w protobuf", code: 4},
	{args: "endpoint hash", own: true},
	{args: "options", own: true},

	{args: "endpoint health"},
	{args: "endpoint health --cluster"},
	{args: "endpoint health -w json"},
	{args: "endpoint health -w fields"},
	{args: "endpoint health -w table"},
	{args: "endpoint health -w protobuf", code: 4},
	{args: "endpoint health -w bad", code: 4},
	{args: "endpoint status"},
	{args: "endpoint status --cluster"},
	{args: "endpoint status -w json"},
	{args: "endpoint status -w fields"},
	{args: "endpoint status -w table"},

	{args: "watch", code: 128},
	{args: "watch a b --prefix", code: 128},
	{args: "watch a --", code: 128},
	{args: "watch -- echo", code: 128},
	{args: "watch a --rev x", code: 1},
	{args: "watch a -w bad", code: 4},
	{args: "watch b", env: "ETCDCTL_WATCH_KEY=a", code: 128},
	{args: "watch b -- echo x", env: "ETCDCTL_WATCH_KEY=a", code: 128},
	{args: "watch", env: "ETCDCTL_WATCH_RANGE_END=b", code: 128},
	{args: "watch -i", code: 3},
	{args: "watch -i", stdin: "nonsense\n", code: 3},
	{args: "watch -i", stdin: "watch\n", code: 3},
	{args: "watch -i", stdin: "progress\n", code: 3},
	{args: "watch b --rev 2", lines: 9},
	{args: "watch a c --rev 2 --prev-kv", lines: 30},
	{args: "watch b --prefix --rev 2 -w json", lines: 1},
	{args: "watch b --rev 2 -w fields", lines: 10},
	{args: "watch b --rev 2 -- echo hello", lines: 9},
	{args: "watch --rev 2", env: "ETCDCTL_WATCH_KEY=b", lines: 9},
	{args: "watch --rev 2 -- echo hello", env: "ETCDCTL_WATCH_KEY=a ETCDCTL_WATCH_RANGE_END=c", lines: 9},
	{args: "watch b --rev 2 -- false", code: 1},

	{args: "get a --endpoints 127.0.0.1:1 --command-timeout 300ms --dial-timeout 300ms", code: 1},
	{args: "put a 1 --endpoints 127.0.0.1:1 --command-timeout 300ms --dial-timeout 300ms", code: 1},
	{args: "member list --endpoints 127.0.0.1:1 --command-timeout 300ms", code: 1},
	{args: "get a --endpoints 127.0.0.1:1,SERVER"},
	{args: `get a --endpoints ""`, code: 2},
	{args: "endpoint health --endpoints 127.0.0.1:1,SERVER --command-timeout 300ms", code: 1},
	{args: "endpoint status --endpoints 127.0.0.1:1,SERVER --command-timeout 300ms", code: 1},
	{args: "endpoint health --cluster --endpoints 127.0.0.1:1 --command-timeout 300ms", code: 1},
	{args: "get a --command-timeout 0s", code: 1},
	{args: "get a --dial-timeout x", code: 1},
	{args: "get a --cert x", code: 128},
	{args: `get a --cert ""`, code: 128},
	{args: "get a --cert x --key y", code: 128},
	{args: "get a --cacert /nonexistent", code: 128},
	{args: "get a --user root:x"},
	{args: "get a --user root --password x"},
	{args: "get a --max-request-bytes 100 --max-recv-bytes 1000"},
	{args: "get a --max-request-bytes 1", code: 1},

	{args: "snapshot save", code: 128},
	{args: "snapshot save a b", code: 128},
	{args: "snapshot save /nonexistent/x", code: 5},
	{args: "snapshot save /nonexistent/x --endpoints 127.0.0.1:1,SERVER", code: 5},
	{args: "snapshot save never --endpoints 127.0.0.1:1 --command-timeout 300ms", code: 5},

	{args: "auth", own: true},
	{args: "user", own: true},
	{args: "role", own: true},
	{args: "auth status"},
	{args: "auth status x", code: 128, own: true},
	{args: "auth enable", code: 1},
	{args: "role add r"},
	{args: "role add r", code: 1},
	{args: "role add", code: 128},
	{args: "role grant-permission r readwrite a"},
	{args: "role grant-permission r read b c"},
	{args: "role grant-permission r write dir/ --prefix"},
	{args: "role grant-permission r read z --from-key"},
	{args: "role grant-permission r all a", code: 128},
	{args: "role grant-permission r read", code: 128},
	{args: "role grant-permission r read a --prefix --from-key", code: 128},
	{args: "role grant-permission r read a b --prefix", code: 128},
	{args: `role grant-permission r read "" --prefix`},
	{args: "role get r"},
	{args: "role get r -w json"},
	{args: "role get r -w fields"},
	{args: "role get none", code: 1},
	{args: `role revoke-permission r "" --prefix`},
	{args: "role revoke-permission r b c"},
	{args: "role revoke-permission r z --from-key"},
	{args: "role revoke-permission r nothing", code: 1},
	{args: "role list"},
	{args: "role list -w fields"},
	{args: "user add u:secret"},
	{args: "user add u:secret", code: 1},
	{args: "user add v --new-user-password x -w json"},
	{args: "user add w --interactive=false", stdin: "word\n"},
	{args: "user add cn --no-password"},
	{args: "user add", code: 128},
	{args: "user grant-role u r"},
	{args: "user grant-role u none", code: 1},
	{args: "user grant-role u", code: 128},
	{args: "user get u"},
	{args: "user get cn"},
	{args: "user get u --detail"},
	{args: "user get u -w fields", code: 4},
	{args: "user list"},
	{args: "user passwd v --interactive=false", stdin: "y\n"},
	{args: "user passwd v --interactive=false -w fields", stdin: "y\n"},
	{args: "user revoke-role u r"},
	{args: "user revoke-role u r", code: 1},
	{args: "user delete v"},
	{args: "user delete v", code: 1},
	{args: "user grant-role u r"},
	{args: "user add root:root"},
	{args: "auth enable"},
	{args: "put a 1", code: 1},
	{args: "put a 1", env: "ETCDCTL_USER=u:secret"},
	{args: "get a", env: "ETCDCTL_USER=u ETCDCTL_PASSWORD=secret"},
	{args: "put b 1", env: "ETCDCTL_USER=u:secret", code: 1},
	{args: "get a", env: "ETCDCTL_USER=u:wrong", code: 2},
	{args: "user get u", env: "ETCDCTL_USER=u:secret"},
	{args: "user list", env: "ETCDCTL_USER=u:secret", code: 1},
	{args: "role get root", env: "ETCDCTL_USER=root:root"},
	{args: "role delete root", env: "ETCDCTL_USER=root:root", code: 1},
	{args: "auth status", env: "ETCDCTL_USER=root:root"},
	{args: "role delete r", env: "ETCDCTL_USER=root:root"},
	{args: "user get u", env: "ETCDCTL_USER=root:root"},
	{args: "auth disable", env: "ETCDCTL_USER=root:root"},

	{args: "alarm", own: true},
	{args: "alarm list"},
	{args: "alarm list x", code: 128},
	{args: "alarm list -w json"},
	{args: "alarm disarm"},
	{args: "compaction", code: 128},
	{args: "compaction x", code: 1},
	{args: "compaction 100000", code: 1},
	{args: "compaction 10"},
	{args: "compaction 10", code: 1},
	{args: "compaction 12 --physical"},
	{args: "defrag"},
	{args: "defrag --cluster"},
	{args: "downgrade", own: true},
	{args: "downgrade validate", code: 128},
	{args: "downgrade validate 3.9", code: 1},
	{args: "downgrade enable 0.0", code: 1},
	{args: "move-leader", code: 128},
	{args: "move-leader xyz", code: 128},
	{args: "move-leader 77", code: 1},
	{args: "lock", code: 128},
	{args: "lock l echo locked"},
	{args: "lock l false", code: 1},
	{args: "elect", code: 128},
	{args: "elect e", code: 128},
	{args: "elect e v", lines: 2},
	{args: "elect -l e x", code: 128},
	{args: "check", own: true},
	{args: "check perf --load=bad", code: 4},
	{args: "check datascale --load=bad", code: 4},
	{args: "make-mirror", code: 128},
	{args: "make-mirror a b", code: 128},
}

// other are commands on which the two differ, each with its reason.
var other = []command{
	{args: "member nonsense", code: 1, differs: "etcdctl shows the help"},
	{args: "lease nonsense", code: 1, differs: "etcdctl shows the help"},
	{args: "endpoint nonsense", code: 1, differs: "etcdctl shows the help"},
	{args: "completion", code: 0, etcdctl: 1, differs: "stoactl's is a group of commands"},
	{args: "put x 1 2", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "get x y z", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "lease list extra", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "member list extra", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "endpoint health extra", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "endpoint status extra", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "version extra", code: 128, differs: "etcdctl leaves out what is too much"},
	{args: "get x --count-only -w json", code: 0, etcdctl: 128, differs: "etcdctl counts only in the form fields"},
	{args: "lease list -w protobuf", code: 4, differs: "etcdctl writes the header, without the leases"},
	{args: "txn", stdin: "mod(\"a\") >= \"0\"\n\n\n\n", code: 3, etcdctl: 2, differs: "etcdctl panics"},
	{args: "txn", stdin: "lease(\"a\") = \"0\"\n\nget a\n\n\n", code: 0, etcdctl: 2, differs: "etcdctl panics"},
	{args: "txn", stdin: "\nput x \"y\n\n\n", code: 3, differs: "etcdctl leaves out a quote that is not closed"},
	{args: "watch -i", stdin: "watch a --nope\n", code: 3, etcdctl: 128, differs: "stoactl goes on"},
	{args: "watch -i", stdin: "watch a --\n", code: 3, etcdctl: 128, differs: "stoactl goes on"},
	{args: "lease keep-alive 77 --endpoints 127.0.0.1:1 --command-timeout 300ms --dial-timeout 300ms", code: 2, differs: "etcdctl says that the lease has expired"},
	{args: "get a", env: "ETCDCTL_DIAL_TIMEOUT=bad", code: 128, differs: "etcdctl leaves it out"},
	{args: "get a -w simple", env: "ETCDCTL_WRITE_OUT=json", code: 0, etcdctl: 1, differs: "the command line is closer than the environment"},
	{args: "get a --user root", code: 128, differs: "etcdctl asks for the password"},
}

func TestSideBySide(t *testing.T) {
	t.Parallel()
	etcdctl, stoactl := start(t)
	for _, c := range commands {
		want, got := both(t, etcdctl, stoactl, c)
		name := strings.Join([]string{c.env, c.args, c.stdin}, " ")
		if c.lines == 0 {
			require.Equal(t, c.code, want.code, "etcdctl %s: %s", name, want.errout)
			require.Equal(t, c.code, got.code, "stoactl %s: %s", name, got.errout)
		}
		if !c.own {
			require.Equal(t, etcdctl.plain(want.out, c), stoactl.plain(got.out, c), name)
		}
		if c.code != 0 {
			require.Contains(t, got.errout, "Error: ", name)
		}
	}
	for _, c := range other {
		theirs, ours := both(t, etcdctl, stoactl, c)
		name := strings.Join([]string{c.env, c.args, c.stdin}, " ")
		require.Equal(t, c.etcdctl, theirs.code, "etcdctl %s: %s", name, theirs.errout)
		require.Equal(t, c.code, ours.code, "stoactl %s: %s", name, ours.errout)
	}
}

// Unknown commands are errors, on any level.
func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	stoactl := build(t)
	for _, args := range []string{
		"member nosuch", "endpoint nosuch", "lease renew", "extension nosuch", "completion nosuch", "snapshot nosuch", "alarm nosuch", "downgrade nosuch",
	} {
		out, err := exec.Command(stoactl, strings.Fields(args)...).CombinedOutput()
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended, args)
		require.Equal(t, 1, ended.ExitCode(), args)
		require.Contains(t, string(out), "unknown command", args)
	}
}

// An endpoint that isn't there is named, with the reason.
func TestDeadEndpoints(t *testing.T) {
	t.Parallel()
	stoactl := build(t)
	for _, args := range []string{
		"get a", "put a 1", "txn", "del a", "lease grant 5", "lease list", "lease timetolive 5", "lease keep-alive 5", "lease keep-alive 5 --once", "member list",
		"partition list", "extension list", "extension ack x", "endpoint status", "endpoint health", "endpoint health --cluster", "snapshot save never",
	} {
		cmd := exec.Command(stoactl, append(strings.Fields(args), "--endpoints=http://127.0.0.1:1", "--command-timeout=300ms", "--dial-timeout=300ms")...)
		cmd.Stdin = strings.NewReader("\n\n\n")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, args)
		require.Contains(t, string(out), "http://127.0.0.1:1", args)
		require.Contains(t, string(out), "connection refused", args)
	}
	watch := exec.CommandContext(t.Context(), stoactl, "watch", "a", "--endpoints=127.0.0.1:1", "--dial-timeout=300ms")
	errs, err := watch.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	line, err := bufio.NewReader(errs).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "Warning: no connection to 127.0.0.1:1 yet\n", line)
	require.NoError(t, watch.Process.Kill())
	_ = watch.Wait()

	bad := exec.Command(stoactl, "get", "a", "--endpoints=a.invalid:1,127.0.0.1:1", "--command-timeout=300ms")
	text, err := bad.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "no answer from a.invalid:1, 127.0.0.1:1: ")
}

// etcdctl's own commands take STOACTL_* before ETCDCTL_*, as stoactl's do, and refuse the flags
// that they would ignore.
func TestMountedCommandsAreStoactls(t *testing.T) {
	t.Parallel()
	server := process.StartT(t, process.Spec{Partitions: 1}).Servers[0]
	stoactl := &tool{path: build(t), server: server}
	r := stoactl.run(t, command{args: "alarm list", env: "STOACTL_WRITE_OUT=json ETCDCTL_WRITE_OUT=fields"})
	require.Zero(t, r.code, r.errout)
	require.Contains(t, r.out, `{"header"`)
	for _, flag := range []string{"compose", "client-id", "lease"} {
		r = stoactl.run(t, command{args: "alarm list --" + flag + " x"})
		require.Equal(t, 128, r.code)
		require.Equal(t, "Error: stoactl alarm list has no --"+flag+"\n", r.errout)
	}
}
