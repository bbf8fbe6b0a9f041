package top

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// The stories in testdata build samples, and look at the screen:
//
//	sample time=SECONDS            begin a sample; the one before is compared with it
//	server NAME id=N               the metrics below are those of a server
//	down NAME id=N                 it gives no answer, for the reason below
//	partitions                     the leader's answer below, as JSON
//	trouble                        what could not be asked
//	screen [width=N] [height=N]    the screen; heads of tables are marked
//	json                           the report as JSON
func TestScreens(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var before, now *Sample
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			name, id := "", uint64(0)
			if len(d.CmdArgs) > 0 && d.CmdArgs[0].Vals == nil {
				name = d.CmdArgs[0].Key
			}
			if d.HasArg("id") {
				d.ScanArgs(t, "id", &id)
			}
			switch d.Cmd {
			case "sample":
				var seconds int64
				d.ScanArgs(t, "time", &seconds)
				before, now = now, &Sample{Time: time.Unix(seconds, 0).UTC(), Cluster: 0xc1}
			case "server":
				n, err := Parse(strings.NewReader(d.Input + "\n"))
				if err != nil {
					return "error: " + err.Error() + "\n"
				}
				require.Equal(t, id, n.ID)
				now.Servers = append(now.Servers, Server{ID: id, Name: name, Numbers: n})
			case "down":
				now.Servers = append(now.Servers, Server{ID: id, Name: name, Trouble: d.Input})
			case "partitions":
				now.Partitions = &stoapb.ListPartitionsResponse{}
				require.NoError(t, json.Unmarshal([]byte(d.Input), now.Partitions))
			case "trouble":
				now.Trouble = append(now.Trouble, d.Input)
			case "screen":
				var width, height int
				d.MaybeScanArgs(t, "width", &width)
				d.MaybeScanArgs(t, "height", &height)
				return drawn(Compare(before, now).Screen(width, height))
			case "json":
				b, err := json.MarshalIndent(Compare(before, now), "", " ")
				require.NoError(t, err)
				return string(b) + "\n"
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return ""
		})
	})
}

// drawn is a screen as a text in which an empty line is a dot, since one ends an output.
func drawn(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		switch {
		case l.Text == "":
			b.WriteString(".\n")
		case l.Head:
			fmt.Fprintf(&b, "%s <\n", l.Text)
		default:
			b.WriteString(l.Text + "\n")
		}
	}
	return b.String()
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 20480: "20 kB", 2 << 30: "2.1 GB", 9960: "10 kB", 999_600: "1.0 MB"} {
		require.Equal(t, want, bytesText(n))
	}
}

func FuzzParse(f *testing.F) {
	f.Add("etcd_server_id{server_id=\"a1\"} 1\nstoa_partition_load{partition=\"3\"} 0.5\nstoa_extension_registered{extension=\"q\"} 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		s := &Sample{Servers: []Server{{ID: n.ID, Numbers: n}}}
		for _, l := range Compare(s, s).Screen(40, 20) {
			require.LessOrEqual(t, len(l.Text), 40)
			require.NotContains(t, l.Text, "\x1b")
		}
	})
}
