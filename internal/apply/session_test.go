package apply

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The stories in testdata/sessions are about writes of session 7, unless they name
// another:
//
//	new partitions=N
//	send [session=7] [client=C] [in=P] [batch] [mute]
//	             apply each write below, or all of them as one entry; mute: no client
//	             waits. A line is "SEQ [after PRED] [answered N]: REQUEST"
//	apply [client=C]
//	             apply each request below, which belongs to no session
//	register NAME [client=C]
//	             put the source below as an extension
//	move KEY to=P
//	             give the key a place of its own
//	remembered   the tables
//	cut          what has changed since the last cut
//	restart      go on from what was cut, without what came after
//	keys         all keys
//	where        partitions of the keys below
//
// Each request gets the next stamp where there are several partitions. A second
// machine gets every entry from its bytes, with no client waiting, and must remember
// the same.
func TestSessionStories(t *testing.T) {
	datadriven.Walk(t, "testdata/sessions", func(t *testing.T, path string) {
		s := newSessionRig(1)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			defer func() { require.Equal(t, s.leader.storyRemembered(), s.follower.storyRemembered()) }()
			switch d.Cmd {
			case "new":
				s = newSessionRig(number(d, "partitions"))
				return ""
			case "send":
				return s.storySend(d)
			case "apply":
				var out string
				for _, line := range strings.Split(d.Input, "\n") {
					out += s.ask(d, requestOf(line))
				}
				return out
			case "register":
				return s.ask(d, &pb.PutRequest{Key: []byte("/em/" + d.CmdArgs[0].Key), Value: []byte(d.Input + "\n")})
			case "move":
				s.move(d.CmdArgs[0].Key, number(d, "to"))
				return ""
			case "remembered":
				return s.leader.storyRemembered()
			case "cut":
				return s.storyCut()
			case "restart":
				s.restart(t)
				return ""
			case "keys":
				return s.leader.storyKeys()
			case "where":
				return s.leader.storyWhere(d)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// sessionRig is a server whose clients wait, and one without waiting clients.
type sessionRig struct {
	leader, follower *rig
	stored           map[string][]byte // what was cut
}

func newSessionRig(partitions int) *sessionRig {
	s := &sessionRig{leader: newRig(partitions), follower: newRig(partitions), stored: map[string][]byte{}}
	s.leader.quiet, s.follower.quiet = true, true
	return s
}

// entry applies an entry at the next stamp.
func (s *sessionRig) entry(e *command.Entry, parts placement.Set, reply Reply) {
	if len(s.leader.Stores) > 1 {
		for _, st := range s.leader.Stores {
			e.Stamp = max(e.Stamp, st.Rev()+1)
		}
	}
	copied, err := command.Decode(e.AppendTo(nil))
	if err != nil {
		panic(err)
	}
	s.leader.entry(e, parts, reply)
	s.follower.entry(&copied, parts, nil)
}

func (s *sessionRig) plan(kind command.Kind, req proto.Message, client string) Plan {
	who := func() (string, int64) { return client, 0 }
	if kind == command.Range || kind == command.Watch {
		p, _ := s.leader.PlanRead(kind, req, who)
		return p
	}
	return s.leader.PlanInSession(kind, req, who)
}

// ask applies a request by itself.
func (s *sessionRig) ask(d *datadriven.TestData, req proto.Message) (out string) {
	client, _ := text(d, "client")
	c := cmd(req)
	p := s.plan(c.Kind, req, client)
	s.entry(&command.Entry{Commands: []command.Command{p.Command(c.Kind, c.Body)}}, p.Parts, func(_ int, r Result) { out = formatResult(r) + "\n" })
	return out
}

func (s *sessionRig) storySend(d *datadriven.TestData) string {
	var out strings.Builder
	reply := func(_ int, r Result) { fmt.Fprintln(&out, formatResult(r)) }
	if d.HasArg("mute") {
		reply = nil
	}
	var batch command.Entry
	var parts placement.Set
	for _, line := range strings.Split(d.Input, "\n") {
		c, in := s.numbered(d, line)
		if d.HasArg("batch") {
			batch.Commands = append(batch.Commands, c)
			parts |= in
			continue
		}
		s.entry(&command.Entry{Commands: []command.Command{c}}, in, reply)
	}
	if d.HasArg("batch") {
		s.entry(&batch, parts, reply)
	}
	return out.String()
}

// numbered reads a line of send.
func (s *sessionRig) numbered(d *datadriven.TestData, line string) (command.Command, placement.Set) {
	numbers, rest, _ := strings.Cut(line, ": ")
	client, _ := text(d, "client")
	req := requestOf(rest)
	c := cmd(req)
	p := s.plan(c.Kind, req, client)
	c = p.Command(c.Kind, c.Body)
	q := command.Sequenced{Session: 7, Kind: c.Kind, Body: c.Body}
	if n := number(d, "session"); n != 0 {
		q.Session = int64(n)
	}
	words := strings.Fields(numbers)
	q.Seq, _ = strconv.ParseUint(words[0], 10, 64)
	for i := 1; i+1 < len(words); i += 2 {
		n, _ := strconv.ParseUint(words[i+1], 10, 64)
		switch words[i] {
		case "after":
			q.Pred = n
		case "answered":
			q.Answered = n
		default:
			panic("unknown word " + words[i])
		}
	}
	if d.HasArg("in") {
		p.Parts = placement.Of(number(d, "in"))
	}
	return command.Command{Kind: command.InSession, Body: q.AppendTo(nil)}, p.Parts
}

// move gives a key a place of its own on both servers.
func (s *sessionRig) move(key string, to int) {
	stamp := int64(0)
	for _, st := range s.leader.Stores {
		stamp = max(stamp, st.Rev()+1)
	}
	for _, r := range []*rig{s.leader, s.follower} {
		r.place(stamp, nil, false, []placement.Rule{{Key: key, Slot: slotIn(r.Placement(), to)}}, nil)
	}
}

func (s *sessionRig) storyCut() string {
	cut := s.leader.CutSessions()
	s.follower.CutSessions()
	values := cut.AddTo(nil)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == nil {
			fmt.Fprintf(&b, "%s removed\n", name)
			delete(s.stored, name)
			continue
		}
		fmt.Fprintf(&b, "%s %d bytes\n", name, len(values[name]))
		s.stored[name] = values[name]
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *sessionRig) restart(t *testing.T) {
	for _, r := range []*rig{s.leader, s.follower} {
		require.NoError(t, r.LoadSessions(s.stored))
	}
}

// storyRemembered tells the tables.
func (r *rig) storyRemembered() string {
	var b strings.Builder
	for p := range r.sessions {
		for _, id := range slices.Sorted(maps.Keys(r.sessions[p].byID)) {
			s := r.sessions[p].byID[id]
			fmt.Fprintf(&b, "p%d session %d: last %d, answered %d\n", p, id, s.last, s.answered)
			for i := range s.results {
				o := &s.results[i]
				res := Result{Rev: o.rev}
				if o.failed() {
					res.Err = o.err()
				} else {
					res.Response, res.Err = o.response()
				}
				fmt.Fprintf(&b, "  %d: %s\n", o.seq, strings.ReplaceAll(formatResult(res), "\n", "\n  "))
			}
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
