package wal

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestStories runs the scripts in testdata against a log. The commands:
//
//	open                          open the log and print the replayed records
//	append                        append one frame; a record per line: group index data [xN]
//	sync, close
//	release keep=(1,2)            the lowest index that each group needs
//	kill                          kill the process, the machine keeps running
//	flip segment=N at=OFFSET      invert a bit
//	zero segment=N from=A to=B    zero a range of bytes
//	remove segment=N
//	dump                          the files as Inspect shows them
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		f := newFixture(t)
		f.o.SegmentBytes = 512
		f.o.Metadata = []byte("server 1")
		f.o.Head = func() []Record { return []Record{{Group: 9, Kind: 1, Data: []byte("state")}} }
		s := &story{fixture: f}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			if err := s.run(t, d, &out); err != nil {
				fmt.Fprintln(&out, "error:", err)
			}
			for _, entry := range f.logs.TakeAll() {
				fields := entry.ContextMap()
				fmt.Fprintf(&out, "log: %s (file %s, offset %d, %d bytes: %s)\n", entry.Message,
					path.Base(fields["file"].(string)), fields["offset"], fields["bytes"], fields["found"])
			}
			return out.String()
		})
	})
}

type story struct {
	*fixture
	w *WAL
}

func (s *story) run(t *testing.T, d *datadriven.TestData, out *strings.Builder) (err error) {
	var segment, at, from, to uint64
	d.MaybeScanArgs(t, "segment", &segment)
	d.MaybeScanArgs(t, "at", &at)
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "to", &to)
	switch d.Cmd {
	case "open":
		s.w, err = s.tryOpen()
		for _, r := range s.got {
			fmt.Fprintln(out, brief(r))
		}
	case "append":
		err = s.w.Append(parseRecords(t, d.Input))
	case "sync":
		err = s.w.Sync()
	case "close":
		err = s.w.Close()
	case "release":
		var keep []uint64
		d.ScanArgs(t, "keep", &keep)
		err = s.w.Release(needs(keep...))
	case "kill":
		s.fs = s.fs.Restart()
	case "flip":
		s.flip(segment, int64(at))
	case "zero":
		_, err = s.file(segment).WriteAt(make([]byte, to-from), int64(from))
	case "remove":
		err = s.fs.Remove(segmentPath(segment))
	case "dump":
		err = s.dump(out)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return err
}

func parseRecords(t *testing.T, input string) (recs []Record) {
	for line := range strings.Lines(input) {
		var r Record
		var data string
		n := 1
		_, err := fmt.Sscanf(line, "%d %d %s x%d", &r.Group, &r.Index, &data, &n)
		if n == 1 {
			_, err = fmt.Sscanf(line, "%d %d %s", &r.Group, &r.Index, &data)
		}
		require.NoError(t, err, line)
		r.Kind, r.Data = 1, bytes.Repeat([]byte(data), n)
		recs = append(recs, r)
	}
	return recs
}

// brief shortens long data.
func brief(s string) string {
	if len(s) > 40 {
		return s[:36] + "…\""
	}
	return s
}

func (s *story) dump(out *strings.Builder) error {
	return Inspect(s.fs, testDir, Inspection{
		Segment: func(i SegmentInfo) error {
			fmt.Fprintf(out, "%s: %d bytes\n", path.Base(i.File), i.Size)
			return nil
		},
		Frame: func(f FrameInfo, recs []Record) error {
			fmt.Fprintf(out, "  %d..%d %s, synced to %d:", f.Offset, f.Offset+f.Size, f.Kind, f.Durable)
			for _, r := range recs {
				fmt.Fprintf(out, " %s", brief(show(r)))
			}
			fmt.Fprintln(out)
			return nil
		},
		Torn: func(_ string, offset, n int64, why string) error {
			fmt.Fprintf(out, "  %d..%d torn: %s\n", offset, offset+n, why)
			return nil
		},
	})
}
