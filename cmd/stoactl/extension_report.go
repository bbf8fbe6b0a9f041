package main

import (
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/rehearsal"
)

// reporter prints the results of requests. Every line begins with a keyword.
type reporter struct {
	*printer
	usage bool
	items []item // of the latest request
}

// item is a line of a report, without counts of steps and bytes.
type item struct{ word, text string }

func (p *reporter) request(s *scripted) {
	p.items = nil
	for line := range strings.SplitSeq(s.text, "\n") {
		p.line(strings.TrimRight("> "+line, " "))
	}
}

func (p *reporter) item(word, format string, args ...any) {
	p.itemWith("", word, format, args...)
}

// itemWith is item with a suffix that scripts can't expect.
func (p *reporter) itemWith(usage, word, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.items = append(p.items, item{word, text})
	p.printf("  %-7s %s%s\n", word, text, usage)
}

func (p *reporter) report(r *rehearsal.Rehearsal, report *rehearsal.Report) {
	switch {
	case report.Err != nil:
		p.item("error", "%v", report.Err)
	case report.Watch > 0:
		p.item("answer", "watch %d is one of %s", report.Watch, rangeText(r.Watched(report.Watch)))
	default:
		p.answer(report.Response, "")
	}
	for _, run := range report.Runs {
		p.run(&run, report.Err)
	}
	for _, c := range report.Changes {
		p.change(&c)
	}
	for _, e := range report.Events {
		p.item("watch", "%d: %s", e.Watch, changeText(&e.Change))
	}
}

func rangeText(key, end []byte) string {
	if len(end) == 0 {
		return text(key)
	}
	return fmt.Sprintf("[%s, %s)", text(key), text(end))
}

// answer prints a response; indent is of one inside a txn.
func (p *reporter) answer(resp proto.Message, indent string) {
	say := func(format string, args ...any) { p.item("answer", "%s%s", indent, fmt.Sprintf(format, args...)) }
	switch r := resp.(type) {
	case *pb.PutResponse:
		say("OK")
		if r.GetPrevKv() != nil {
			say("previous %s", kvText(r.GetPrevKv()))
		}
	case *pb.DeleteRangeResponse:
		say("deleted %d", r.GetDeleted())
		for _, kv := range r.GetPrevKvs() {
			say("previous %s", kvText(kv))
		}
	case *pb.RangeResponse:
		for _, kv := range r.GetKvs() {
			say("%s", kvText(kv))
		}
		if n := r.GetCount() - int64(len(r.GetKvs())); n > 0 {
			say("%d more", n)
		} else if len(r.GetKvs()) == 0 {
			say("nothing")
		}
	case *pb.TxnResponse:
		say("%s", map[bool]string{true: "succeeded", false: "failed"}[r.GetSucceeded()])
		for _, op := range r.GetResponses() {
			p.answer(responseOf(op), indent+"  ")
		}
	default:
		say("OK")
	}
}

func responseOf(op *pb.ResponseOp) proto.Message {
	switch r := op.GetResponse().(type) {
	case *pb.ResponseOp_ResponsePut:
		return r.ResponsePut
	case *pb.ResponseOp_ResponseRange:
		return r.ResponseRange
	case *pb.ResponseOp_ResponseDeleteRange:
		return r.ResponseDeleteRange
	case *pb.ResponseOp_ResponseTxn:
		return r.ResponseTxn
	}
	return nil
}

func (p *reporter) run(run *rehearsal.Run, shown error) {
	what := run.Extension
	if run.Handler != "" {
		what += ", " + run.Handler + " " + text([]byte(run.Key))
	}
	usage := ""
	if p.usage && run.Handler != "" {
		usage = fmt.Sprintf(": %d steps, %d bytes, %d operations", run.Steps, run.Bytes, run.Operations)
	}
	if run.Err != nil && run.Err != shown {
		usage += "; failed: " + run.Err.Error()
	}
	p.itemWith(usage, "ran", "%s", what)
	for _, line := range run.Log {
		p.item("log", "%s", text([]byte(line)))
	}
}

func (p *reporter) change(c *rehearsal.Change) {
	word := "change"
	if c.Notice() {
		word = "notice"
	}
	p.item(word, "%s%s", changeText(c), map[bool]string{true: " (suppressed)"}[c.Hidden()])
}

func changeText(c *rehearsal.Change) string {
	switch {
	case c.Delete:
		return "delete " + text(c.Kv.Key())
	case c.Notice():
		return kvText(c.Kv.Message())
	}
	return "put " + kvText(c.Kv.Message())
}

func kvText(kv *mvccpb.KeyValue) string {
	s := text(kv.GetKey()) + " = " + strconv.Quote(string(kv.GetValue()))
	if kv.GetLease() != 0 {
		s += fmt.Sprintf(", lease %x", kv.GetLease())
	}
	return s
}

// text is a key: quoted if it would be hard to read otherwise.
func text(key []byte) string {
	if q := strconv.Quote(string(key)); q != `"`+string(key)+`"` || strings.ContainsAny(string(key), " ,=") || len(key) == 0 {
		return q
	}
	return string(key)
}

// keys prints all keys but those of the extension manager.
func (p *reporter) keys(r *rehearsal.Rehearsal) {
	report := r.Do(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, rehearsal.Caller{})
	p.line("keys")
	resp, _ := report.Response.(*pb.RangeResponse)
	for _, kv := range resp.GetKvs() {
		if !strings.HasPrefix(string(kv.GetKey()), "/em/") {
			p.printf("  %s\n", kvText(kv))
		}
	}
}

// profiles prints where the steps of each extension went.
func (p *reporter) profiles(r *rehearsal.Rehearsal, sources []named) {
	for _, s := range sources {
		calls, lines := r.Profile(s.name)
		all := profiled{Name: s.name, Calls: calls, source: s.source}
		for _, l := range lines {
			all.add(int64(l.Line), l.Calls, l.Steps)
		}
		all.list(p.printer)
	}
}
