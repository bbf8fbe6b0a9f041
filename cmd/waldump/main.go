package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/wal"
)

func main() {
	if err := run(os.Args[1:], vfs.OS(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "waldump:", err)
		os.Exit(1)
	}
}

func run(args []string, fs vfs.FS, out io.Writer) error {
	flags := pflag.NewFlagSet("waldump", pflag.ContinueOnError)
	p := printer{out: out}
	flags.IntVar(&p.group, "group", -1, "print only the records of this group")
	flags.BoolVar(&p.data, "data", false, "print the records' data, quoted")
	flags.BoolVar(&p.check, "check", false, "print only a summary of each segment")
	flags.Usage = func() {
		fmt.Fprintf(out, "Usage: waldump [flags] DATA-DIR/member/wal\n\nPrints a server's write-ahead log, or checks it, without changing it.\n\n%s", flags.FlagUsages())
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("one argument is expected: the directory of the log, as DATA-DIR/member/wal")
	}
	err := wal.Inspect(fs, flags.Arg(0), wal.Inspection{Segment: p.segment, Frame: p.frame, Torn: p.torn})
	p.summary()
	return err
}

type printer struct {
	out     io.Writer
	group   int
	data    bool
	check   bool
	open    bool
	frames  int
	records int
	end     int64
}

func (p *printer) segment(s wal.SegmentInfo) error {
	p.summary()
	p.open, p.frames, p.records, p.end = true, 0, 0, 0
	_, err := fmt.Fprintf(p.out, "segment %s: %d bytes, metadata %q\n", s.File, s.Size, s.Metadata)
	return err
}

// summary closes the section of a segment.
func (p *printer) summary() {
	if p.open {
		fmt.Fprintf(p.out, "  %d records in %d frames up to offset %d\n", p.records, p.frames, p.end)
	}
}

func (p *printer) frame(f wal.FrameInfo, recs []wal.Record) error {
	p.frames, p.records, p.end = p.frames+1, p.records+len(recs), f.Offset+f.Size
	if p.check {
		return nil
	}
	if p.group < 0 || f.Kind != "records" {
		fmt.Fprintf(p.out, "  %d: %s, %d bytes, synced to %d\n", f.Offset, f.Kind, f.Size, f.Durable)
	}
	for _, r := range recs {
		if p.group >= 0 && r.Group != uint32(p.group) {
			continue
		}
		fmt.Fprintf(p.out, "    group %d %s\n", r.Group, raftlog.Describe(r))
		if p.data && len(r.Data) > 0 {
			fmt.Fprintf(p.out, "      %q\n", r.Data)
		}
	}
	return nil
}

func (p *printer) torn(file string, offset, bytes int64, why string) error {
	_, err := fmt.Fprintf(p.out, "  %d: torn tail of %d bytes, would be cut: %s\n", offset, bytes, why)
	return err
}
