package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The stories in testdata/extensions know, beside new and state of the other
// stories:
//
//	register NAME [client=C] [lease=L]
//	                            put the source below as /em/NAME
//	source NAME bytes=N         put a source of this size that handles reads of /NAME
//	set KEY [client=C]          put the text below as the key's value
//	request [client=C] [lease=L] [in=P] [stamp=N]
//	                            plan and apply each request below by itself; "watch KEY"
//	                            and "get KEY" go through the log if an extension handles
//	                            them; in=P: into that partition, wherever it belongs
//	plain                       the same as commands without a plan
//	reload                      build the registry anew from the keys
//	plan [client=C]             where the requests below would go
//	keys                        all keys, and what is registered
//	where                       partitions of the keys below
//
// With several partitions each request gets the next stamp where it has none. Values
// of several lines are told by their length, and changes that the watches of some
// clients are not shown by the names of those clients.
func TestExtensionStories(t *testing.T) {
	datadriven.Walk(t, "testdata/extensions", func(t *testing.T, path string) {
		r := newRig(1)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				r = newRig(number(d, "partitions"))
				return ""
			case "register":
				name := d.CmdArgs[0].Key
				return r.ask(d, &pb.PutRequest{Key: []byte("/em/" + name), Value: []byte(d.Input + "\n"), Lease: int64(number(d, "lease"))})
			case "source":
				return r.ask(d, &pb.PutRequest{Key: []byte("/em/" + d.CmdArgs[0].Key), Value: sourceOf(d.CmdArgs[0].Key, number(d, "bytes"))})
			case "set":
				return r.ask(d, &pb.PutRequest{Key: []byte(d.CmdArgs[0].Key), Value: []byte(d.Input)})
			case "request", "plain", "plan":
				var out string
				for _, line := range strings.Split(d.Input, "\n") {
					out += r.ask(d, requestOf(line))
				}
				return out
			case "reload":
				before := r.registered()
				err := r.LoadExtensions()
				require.Equal(t, before, r.registered())
				require.NoError(t, err)
				return ""
			case "state":
				return r.storyState()
			case "keys":
				return r.storyKeys()
			case "where":
				return r.storyWhere(d)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func sourceOf(name string, bytes int) []byte {
	s := fmt.Sprintf(`return { scope = { "/%s" }, operations = { { op = "read", key = "/%s" } }, read = function(r) return "here" end }`+"\n--", name, name)
	return append([]byte(s), strings.Repeat("x", bytes-len(s))...)
}

func requestOf(line string) proto.Message {
	if words := strings.Fields(line); words[0] == "watch" {
		return &pb.WatchCreateRequest{Key: []byte(words[1])}
	}
	return (&parser{lines: strings.Split(strings.ReplaceAll(line, "; ", "\n\t"), "\n")}).requests(0)[0]
}

// ask plans a request as a server does for a client, and applies it.
func (r *rig) ask(d *datadriven.TestData, req proto.Message) string {
	client, _ := text(d, "client")
	who := func() (string, int64) { return client, int64(number(d, "lease")) }
	var p Plan
	kind, logged := kindOf(req), true
	switch {
	case d.Cmd == "plain":
		p = Plan{Parts: r.Parts(req)}
	case kind == command.Range || kind == command.Watch:
		p, logged = r.PlanRead(kind, req, who)
	default:
		p = r.Plan(kind, req, who)
	}
	if d.Cmd == "plan" {
		s := fmt.Sprintf("%v", p.Parts)
		if p.Call != nil {
			s += fmt.Sprintf(" by %q as of %d for %s", p.Call.Name, p.Call.Version, p.Call.Client)
		}
		return fmt.Sprintf("%s, logged %v\n", s, logged)
	}
	if !logged {
		return "not through the log\n"
	}
	if d.HasArg("in") {
		p.Parts = placement.Of(number(d, "in"))
	}
	stamp := int64(number(d, "stamp"))
	if stamp == 0 && len(r.Stores) > 1 {
		for _, s := range r.Stores {
			stamp = max(stamp, s.Rev()+1)
		}
	}
	return r.carryOut(stamp, kind, req, p)
}

func (r *rig) carryOut(stamp int64, kind command.Kind, req proto.Message, p Plan) string {
	c := p.Command(kind, cmd(req).Body)
	var out []string
	r.entry(&command.Entry{Stamp: stamp, Commands: []command.Command{c}}, p.Parts, func(_ int, res Result) {
		out = append(out, formatResult(res))
	})
	out = append(out, r.seen...)
	r.seen = nil
	return strings.Join(out, "\n") + "\n"
}

func text(d *datadriven.TestData, name string) (string, bool) {
	if arg, ok := d.Arg(name); ok {
		return arg.Vals[0], true
	}
	return "", false
}

// registered is the registry as far as it shows.
func (r *rig) registered() []string {
	list := []string{fmt.Sprintf("%+v", r.Extensions().Limits)}
	for _, e := range r.Extensions().All() {
		list = append(list, fmt.Sprintf("%s as of %d: scope %v, operations %v, events %v", e.Name, e.Order, e.Scope, e.Operations, e.Events))
	}
	return list
}

func (r *rig) storyKeys() string {
	var b strings.Builder
	x := execution{m: r.Machine, parts: r.Placement().All(), local: alone(r.Placement().All())}
	for _, kv := range x.newest([]byte{0}, []byte{0}, 0) {
		fmt.Fprintln(&b, formatKv(kv.Message()))
	}
	for _, s := range r.registered()[1:] {
		fmt.Fprintf(&b, "registered: %s\n", s)
	}
	return b.String()
}
