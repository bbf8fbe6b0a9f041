package extensions

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/stoa-kv/stoa/internal/extension"
)

// The stories in testdata are named for the recipe that they are about, and say what a
// client asks and is told:
//
//	do      one request a line: get KEY, put KEY [VALUE] [lease=L], del KEY, watch KEY
//	        [lease=L], expire L
//	keys    what is there
//	new     nothing is
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		name := filepath.Base(path)
		s := newService(name)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s = newService(name)
				return ""
			case "keys":
				return s.list() + "\n"
			case "do":
				var out strings.Builder
				for _, line := range strings.Split(d.Input, "\n") {
					fmt.Fprintf(&out, "%s: %s\n", line, s.line(line))
				}
				return out.String()
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func (s *service) line(line string) string {
	words := strings.Fields(line)
	r := &extension.Request{Client: "tester"}
	var rest []string
	for _, w := range words[1:] {
		if hex, ok := strings.CutPrefix(w, "lease="); ok {
			r.Lease, _ = strconv.ParseInt(hex, 16, 64)
			s.leases[r.Lease] = true
			continue
		}
		rest = append(rest, w)
	}
	if words[0] == "lease" || words[0] == "expire" {
		id, _ := strconv.ParseInt(words[1], 16, 64)
		if s.leases[id] = true; words[0] == "lease" {
			return "granted"
		}
		if err := s.expire(id); err != nil {
			return err.Error()
		}
		return "over"
	}
	r.Op = map[string]extension.Op{"get": extension.Read, "put": extension.Put, "del": extension.Delete, "watch": extension.Block}[words[0]]
	r.Key, r.Value = []byte(rest[0]), []byte(strings.Join(rest[1:], " "))
	out, err := s.do(r)
	if err != nil {
		return err.Error()
	}
	return s.say(r, out)
}
