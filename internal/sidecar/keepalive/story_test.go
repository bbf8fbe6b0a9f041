package keepalive

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs testdata/stories:
//
//	ask stream=S lease=N by=PROGRAM   by itself, unless it is said
//	close stream=S
//	take                      what is to be sent to a member
//	renewed lease=N ttl=N     its answer
//	lost lease=N reason=TEXT  the stream to it breaks
//	fail reason=TEXT
//	read stream=S             what the client gets
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		h, streams := New(func() {}), map[string]*Stream{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return tell(t, h, streams, d)
		})
	})
}

func tell(t *testing.T, h *Hub, streams map[string]*Stream, d *datadriven.TestData) string {
	var b strings.Builder
	var name, reason, ttl, by string
	var id int64
	d.MaybeScanArgs(t, "stream", &name)
	d.MaybeScanArgs(t, "lease", &id)
	d.MaybeScanArgs(t, "reason", &reason)
	d.MaybeScanArgs(t, "ttl", &ttl)
	if !d.MaybeScanArgs(t, "by", &by) {
		by = name
	}
	st := streams[name]
	if st == nil && name != "" {
		st = h.Open(by, func() {})
		streams[name] = st
	}
	switch d.Cmd {
	case "ask":
		st.Ask(id)
	case "close":
		st.Close()
	case "take":
		for {
			id, ok := h.Take()
			if !ok {
				break
			}
			fmt.Fprintf(&b, "renew %d\n", id)
		}
	case "renewed":
		h.Renewed(id, []byte(fmt.Sprintf("lease %d, TTL %s", id, ttl)))
	case "lost":
		h.Lost(id, errors.New(reason))
	case "fail":
		h.Fail(errors.New(reason))
	case "read":
		for {
			answer, err := st.Next()
			if err != nil {
				fmt.Fprintf(&b, "ends: %v\n", err)
			}
			if answer == nil {
				break
			}
			fmt.Fprintf(&b, "%s\n", answer)
		}
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return b.String()
}
