package apply

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The stories in testdata/stories drive a machine with these commands:
//
//	new partitions=N [held]
//	                       fresh stores; held: keys that have to move wait for step
//	entry [stamp=N] [in=P] [mute]
//	                       apply the requests below as one entry, where they belong or in
//	                       partition P; mute: no client waits
//	read [at=N]            evaluate the range or txn below without the log
//	raw kind=N             apply an entry with one command of this kind, the body below in Go's quotes
//	place stamp=N [early]  requests, then lines "rule KEY pN" (or "no rules"), then requests, as one command:
//	                       between them keys move to where the rules say; early: after the first
//	                       have been published
//	step stamp=N keys=N    the next step of their way, of about so many
//	copy stamp=N           the last step once more
//	state                  what the server has once, and where each partition stands
//	where                  partitions of the keys below
//
// A request is one line; a txn goes on with if, then and else lines, indented
// by one more tab than itself.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		r := newRig(1)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				r = newRig(number(d, "partitions"))
				r.held = d.HasArg("held")
				return ""
			case "step", "copy":
				return r.storyStep(d)
			case "entry":
				return r.storyEntry(d)
			case "read":
				return r.storyRead(d)
			case "place":
				return r.storyPlace(d)
			case "raw":
				return r.storyRaw(d)
			case "state":
				return r.storyState()
			case "where":
				return r.storyWhere(d)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func (r *rig) storyWhere(d *datadriven.TestData) string {
	var b strings.Builder
	for _, key := range strings.Fields(d.Input) {
		fmt.Fprintf(&b, "%s: p%d\n", key, r.Placement().Partition([]byte(key)))
	}
	return b.String()
}

func number(d *datadriven.TestData, name string) int {
	n := 0
	if arg, ok := d.Arg(name); ok {
		n, _ = strconv.Atoi(arg.Vals[0])
	}
	return n
}

func (r *rig) storyEntry(d *datadriven.TestData) string {
	e := command.Entry{Stamp: int64(number(d, "stamp"))}
	var parts placement.Set
	for _, req := range (&parser{lines: strings.Split(d.Input, "\n")}).requests(0) {
		e.Commands = append(e.Commands, cmd(req))
		parts |= r.Parts(req)
	}
	if d.HasArg("in") {
		parts = placement.Of(number(d, "in"))
	}
	var out []string
	reply := func(_ int, res Result) { out = append(out, formatResult(res)) }
	if d.HasArg("mute") {
		reply = nil
	}
	r.entry(&e, parts, reply)
	out = append(out, r.seen...)
	r.seen = nil
	return strings.Join(out, "\n") + "\n"
}

func (r *rig) storyRead(d *datadriven.TestData) string {
	var resp proto.Message
	var err error
	at := int64(number(d, "at"))
	switch req := (&parser{lines: strings.Split(d.Input, "\n")}).requests(0)[0].(type) {
	case *pb.RangeRequest:
		var found *kvwire.RangeResponse
		found, err = r.Range(req, r.Parts(req), at, 0)
		resp = found.Message()
	case *pb.TxnRequest:
		resp, err = r.ReadTxn(req, r.Parts(req), at, 0)
	}
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	return formatResponse(resp, "") + "\n"
}

func (r *rig) storyRaw(d *datadriven.TestData) string {
	body, err := strconv.Unquote(d.Input)
	if err != nil {
		return err.Error()
	}
	e := command.Entry{Commands: []command.Command{{Kind: command.Kind(number(d, "kind")), Body: []byte(body)}}}
	var out string
	r.entry(&e, r.Placement().All(), func(_ int, res Result) { out = formatResult(res) + "\n" })
	return out
}

func (r *rig) storyState() string {
	var b strings.Builder
	for p, s := range r.Stores {
		index, term := s.Applied()
		fmt.Fprintf(&b, "p%d: revision %d, %d keys, applied %d/%d\n", p, s.Rev(), s.Keys(), index, term)
	}
	for _, l := range r.Leases.List() {
		fmt.Fprintf(&b, "lease %d: %d s, remaining %d\n", l.ID, l.TTL, l.Remaining)
	}
	fmt.Fprintf(&b, "alarms %s, compacted %d\n", formatAlarms(r.Alarms()), r.Machine.Compacted())
	return b.String()
}

// parser reads the requests of a story.
type parser struct{ lines []string }

// requests reads lines indented by depth tabs.
func (p *parser) requests(depth int) []proto.Message {
	var reqs []proto.Message
	for len(p.lines) > 0 && strings.Count(p.lines[0], "\t") == depth {
		words := strings.Fields(p.lines[0])
		p.lines = p.lines[1:]
		reqs = append(reqs, p.request(words, depth))
	}
	return reqs
}

func (p *parser) request(words []string, depth int) proto.Message {
	verb, a := words[0], arguments(words[1:])
	switch verb {
	case "put":
		return &pb.PutRequest{
			Key: a.bytes(0), Value: a.bytes(1), Lease: a.number("lease"),
			PrevKv: a.has("prev"), IgnoreValue: a.has("ignore-value"), IgnoreLease: a.has("ignore-lease"),
		}
	case "del":
		return &pb.DeleteRangeRequest{Key: a.bytes(0), RangeEnd: a.bytes(1), PrevKv: a.has("prev")}
	case "get":
		return a.rangeRequest()
	case "grant":
		return &pb.LeaseGrantRequest{ID: a.int(0), TTL: a.int(1)}
	case "open":
		return opening{&pb.LeaseGrantRequest{ID: a.int(0), TTL: a.int(1)}}
	case "revoke":
		return &pb.LeaseRevokeRequest{ID: a.int(0)}
	case "checkpoint":
		return &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: a.int(0), Remaining_TTL: a.int(1)}}}
	case "compact":
		return &pb.CompactionRequest{Revision: a.int(0)}
	case "alarm":
		return &pb.AlarmRequest{
			Action:   pb.AlarmRequest_AlarmAction(pb.AlarmRequest_AlarmAction_value[strings.ToUpper(a.plain[0])]),
			Alarm:    pb.AlarmType(pb.AlarmType_value[strings.ToUpper(a.plain[1])]),
			MemberID: uint64(a.int(2)),
		}
	case "txn":
		return p.txn(depth + 1)
	}
	panic("unknown request " + verb)
}

func (p *parser) txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for len(p.lines) > 0 && strings.Count(p.lines[0], "\t") == depth {
		words := strings.Fields(p.lines[0])
		p.lines = p.lines[1:]
		switch words[0] {
		case "if":
			t.Compare = append(t.Compare, comparisonOf(words[1:]))
		case "then":
			t.Success = append(t.Success, operationOf(p.request(words[1:], depth)))
		case "else":
			t.Failure = append(t.Failure, operationOf(p.request(words[1:], depth)))
		}
	}
	return t
}

// comparisonOf reads "mod KEY = 3" or "mod [KEY,END) = 3".
func comparisonOf(w []string) *pb.Compare {
	c := &pb.Compare{Result: map[string]pb.Compare_CompareResult{
		"=": pb.Compare_EQUAL, "!=": pb.Compare_NOT_EQUAL, ">": pb.Compare_GREATER, "<": pb.Compare_LESS,
	}[w[2]]}
	key, end, _ := strings.Cut(strings.Trim(w[1], "[)"), ",")
	c.Key, c.RangeEnd = unescape(key), unescape(end)
	n, _ := strconv.ParseInt(w[3], 10, 64)
	switch w[0] {
	case "value":
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte(w[3])}
	case "created":
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: n}
	case "mod":
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: n}
	case "version":
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: n}
	case "lease":
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: n}
	}
	return c
}

func operationOf(req proto.Message) *pb.RequestOp {
	switch r := req.(type) {
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	case *pb.TxnRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	return &pb.RequestOp{}
}

// args are the words behind a verb: plain ones by place, name=value and flags
// by name.
type args struct {
	plain []string
	named map[string]string
}

func arguments(words []string) args {
	flags := map[string]bool{"prev": true, "ignore-value": true, "ignore-lease": true, "keys-only": true, "count-only": true, "desc": true, "asc": true}
	a := args{named: map[string]string{}}
	for _, w := range words {
		name, value, ok := strings.Cut(w, ":")
		if ok || flags[w] {
			a.named[name] = value
		} else {
			a.plain = append(a.plain, w)
		}
	}
	return a
}

func (a args) has(name string) bool { _, ok := a.named[name]; return ok }

func (a args) number(name string) int64 {
	n, _ := strconv.ParseInt(a.named[name], 10, 64)
	return n
}

func (a args) int(i int) int64 {
	if i >= len(a.plain) {
		return 0
	}
	n, _ := strconv.ParseInt(a.plain[i], 10, 64)
	return n
}

func (a args) bytes(i int) []byte {
	if i >= len(a.plain) {
		return nil
	}
	return unescape(a.plain[i])
}

// unescape lets a story write the zero byte as \0.
func unescape(s string) []byte { return []byte(strings.ReplaceAll(s, `\0`, "\x00")) }

func (a args) rangeRequest() *pb.RangeRequest {
	r := &pb.RangeRequest{
		Key: a.bytes(0), RangeEnd: a.bytes(1), Revision: a.number("rev"), Limit: a.number("limit"),
		KeysOnly: a.has("keys-only"), CountOnly: a.has("count-only"),
		MinModRevision: a.number("min-mod"), MaxModRevision: a.number("max-mod"),
		MinCreateRevision: a.number("min-created"), MaxCreateRevision: a.number("max-created"),
	}
	r.SortTarget = pb.RangeRequest_SortTarget(pb.RangeRequest_SortTarget_value[strings.ToUpper(a.named["sort"])])
	switch {
	case a.has("desc"):
		r.SortOrder = pb.RangeRequest_DESCEND
	case a.has("asc"):
		r.SortOrder = pb.RangeRequest_ASCEND
	}
	return r
}
