package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// view is an answer in its output forms. A form that is nil doesn't exist for
// this answer.
type view struct {
	json     any
	protobuf proto.Message
	simple   func(p *printer)
	fields   func(p *printer)
	table    func() (head []string, rows [][]string)
}

// show writes an answer in the form of --write-out.
func (a *app) show(v view) error {
	p := &printer{a.out, a.o.hex}
	switch {
	case a.o.form == "simple" && v.simple != nil:
		v.simple(p)
	case a.o.form == "simple" && v.table != nil:
		_, rows := v.table()
		for _, row := range rows {
			p.line(strings.Join(row, ", "))
		}
	case a.o.form == "fields" && v.fields != nil:
		v.fields(p)
	case a.o.form == "json":
		b, err := json.Marshal(v.json)
		if err != nil {
			return fmt.Errorf("showing the answer as JSON: %w", err)
		}
		p.line(string(b))
	case a.o.form == "protobuf" && v.protobuf != nil:
		b, err := proto.Marshal(v.protobuf)
		if err != nil {
			return fmt.Errorf("showing the answer as protobuf: %w", err)
		}
		p.printf("%s", b)
	case a.o.form == "table" && v.table != nil:
		p.table(v.table())
	default:
		return badFeature("--write-out=%s is not supported here", a.o.form)
	}
	return nil
}

// printer writes the common parts of answers.
type printer struct {
	io.Writer
	hex bool
}

func (p *printer) line(args ...any)                  { fmt.Fprintln(p, args...) }
func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// kv is the simple form of a key.
func (p *printer) kv(kv *mvccpb.KeyValue, valueOnly bool) {
	key, value := string(kv.Key), string(kv.Value)
	if p.hex {
		key, value = hexBytes(kv.Key), hexBytes(kv.Value)
	}
	if !valueOnly {
		p.line(key)
	}
	p.line(value)
}

func hexBytes(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		out.WriteString("\\x" + hex.EncodeToString([]byte{c}))
	}
	return out.String()
}

// fieldsKV is the fields form of a key; prefix tells old values from new ones.
func (p *printer) fieldsKV(prefix string, kv *mvccpb.KeyValue) {
	p.printf("\"%sKey\" : %q\n", prefix, kv.Key)
	p.printf("\"%sCreateRevision\" : %d\n", prefix, kv.CreateRevision)
	p.printf("\"%sModRevision\" : %d\n", prefix, kv.ModRevision)
	p.printf("\"%sVersion\" : %d\n", prefix, kv.Version)
	p.printf("\"%sValue\" : %q\n", prefix, kv.Value)
	if p.hex {
		p.printf("\"%sLease\" : %016x\n", prefix, kv.Lease)
		return
	}
	p.printf("\"%sLease\" : %d\n", prefix, kv.Lease)
}

func (p *printer) header(h *pb.ResponseHeader) {
	p.line(`"ClusterID" :`, p.id(h.GetClusterId()))
	p.line(`"MemberID" :`, p.id(h.GetMemberId()))
	if h.GetRevision() > 0 {
		p.line(`"Revision" :`, h.GetRevision())
	}
	p.line(`"RaftTerm" :`, h.GetRaftTerm())
}

func (p *printer) id(id uint64) string {
	if p.hex {
		return fmt.Sprintf("%x", id)
	}
	return fmt.Sprint(id)
}

func (p *printer) table(head []string, rows [][]string) {
	width := make([]int, len(head))
	for i, h := range head {
		head[i] = strings.ToUpper(strings.ReplaceAll(h, "_", " "))
		width[i] = len(h)
	}
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	rule := func(left, cross, right string) {
		parts := make([]string, len(width))
		for i, w := range width {
			parts[i] = strings.Repeat("─", w+2)
		}
		p.line(left + strings.Join(parts, cross) + right)
	}
	rule("┌", "┬", "┐")
	for i, h := range head {
		before := (width[i] - len(h)) / 2
		p.printf("│ %s%s%s ", strings.Repeat(" ", before), h, strings.Repeat(" ", width[i]-len(h)-before))
	}
	p.line("│")
	rule("├", "┼", "┤")
	for _, row := range rows {
		for i, cell := range row {
			p.printf("│ %s%s ", strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)), cell)
		}
		p.line("│")
	}
	rule("└", "┴", "┘")
}

// bytesOf formats a size for humans: 20 kB, 2.1 GB. It rounds twice, as etcdctl's library does.
func bytesOf(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	if v = math.Floor(v*10+0.5) / 10; v < 10 && u > 0 {
		return fmt.Sprintf("%.1f %s", v, units[u])
	}
	return fmt.Sprintf("%.0f %s", v, units[u])
}
