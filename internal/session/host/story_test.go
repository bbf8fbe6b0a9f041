package host

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// The stories in testdata are about what sessions are told, by servers whose every
// step is decided here. Key d lies in partition 0, key a in 1. A line "7 <- ..." is one
// message to the client of session 7.
//
//	new [servers=1] [flush=N] [stamps=1] [merge=N]
//	                  start them; messages end at N words, and a session takes no more events when
//	                  N bytes of them wait for others
//	open [session=7] [server=1] [client=NAME] [next=1] [sent=N] [seen=R] [ttl=60] [map]
//	                  open a session, of which a lease is granted unless there is one,
//	                  with the watches below
//	ask [session=7] [answered=N] [bytes=N]
//	                  the requests of one message, each of so many bytes:
//	                  "SEQ[-SEQ] KIND [KEY] [VALUE] [until=END] [from=REVISION]
//	                  [seen=REVISION] [LEVEL]"; a value "huge" is too large, the kind
//	                  "malformed" is refused before the host sees it
//	put [server=1] key=K value=V
//	                  somebody else's put
//	register NAME     an extension of the source below; its scope's keys move
//	remove NAME       the extension
//	cost NAME TIME    a call of the extension is expected to take so long
//	quiesce [quiet]   let everything happen that doesn't need time; quiet: don't say
//	                  what
//	stick PARTITION [server=N]
//	                  its loops don't run, on one server or on all, until
//	free [server=N]
//	sleep, wake [server=1]
//	                  what is to be done soon has to wait
//	hold, release     keys that should move don't, though they are about to
//	cram, clear [server=1]
//	                  it has no memory for more watches
//	forbid, allow [server=1]
//	                  as far as it knows, nobody may watch anything
//	cut, join         the servers say nothing to each other but Raft's messages
//	elect SERVER      it stamps
//	wait DURATION     let time pass
//	rate N            everybody is one user from now on, who may make N requests a second on
//	                  each server, and with 0 as many as it likes
//	only KEY          everybody is one user from now on, who has permissions for the key
//	password          the user has another one
//	fill, empty       the log refuses writes, for there is no room
//	renewed [gone] [failed]
//	                  answer what is to be renewed
//	drain, hangup, break, revoke [session=7]
//	                  the server stops; the stream ends; it can't be written to any
//	                  more; the lease is revoked
//	stop [server=1]   its replica stops
//	fence [server=1]  its state is found damaged, which its sessions aren't told
//	where KEY         its partition
//	watchers, lagging [server=1]
//	                  how many watchers there are, and reads that wait for the server to
//	                  catch up
//	waiting [session=7]
//	                  requests and bytes that the window counts
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				s = newStory(t, d)
				return ""
			}
			s.said.Reset()
			s.run(t, d)
			if d.HasArg("quiet") {
				return ""
			}
			return s.said.String()
		})
	})
}

const maxRequestBytes = 1000

type story struct {
	*world
	crowd   []*throttle.Turn
	granted map[int64]bool
	clients map[int64]*client
}

// client is the end of a session's stream at which a client would be.
type client struct {
	w       *world
	id      int64
	session *Session
	words   []string
	broken  bool
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	servers, stamps, flush, merge := 1, 1, 100, 0
	d.MaybeScanArgs(t, "servers", &servers)
	d.MaybeScanArgs(t, "stamps", &stamps)
	d.MaybeScanArgs(t, "flush", &flush)
	d.MaybeScanArgs(t, "merge", &merge)
	s := &story{granted: map[int64]bool{}, clients: map[int64]*client{}}
	s.world = newWorld(t, servers, Config{RequestTimeout: time.Second, MaxRequestBytes: maxRequestBytes, FlushBytes: flush, MergeBytes: merge})
	s.elect(s.servers[stamps-1])
	return s
}

func (s *story) run(t *testing.T, d *datadriven.TestData) {
	at, id := 1, 7
	d.MaybeScanArgs(t, "server", &at)
	d.MaybeScanArgs(t, "session", &id)
	sv, c := s.servers[at-1], s.clients[int64(id)]
	switch d.Cmd {
	case "hold", "release":
		s.held = d.Cmd == "hold"
	case "open":
		s.open(sv, int64(id), d)
	case "ask":
		s.ask(c, d)
	case "put":
		var key, value string
		d.ScanArgs(t, "key", &key)
		d.ScanArgs(t, "value", &value)
		s.commit(sv, command.Put, &pb.PutRequest{Key: []byte(key), Value: []byte(value)}, false)
	case "register":
		req := &pb.PutRequest{Key: []byte("/em/" + d.CmdArgs[0].Key), Value: []byte(d.Input + "\n")}
		s.commit(sv, command.Put, req, false)
	case "remove":
		s.commit(sv, command.DeleteRange, &pb.DeleteRangeRequest{Key: []byte("/em/" + d.CmdArgs[0].Key)}, false)
	case "cost":
		took, err := time.ParseDuration(d.CmdArgs[1].Key)
		require.NoError(t, err)
		for range 100 { // the mean of so many
			sv.state.Machine.Extensions().Get(d.CmdArgs[0].Key).Costs[extension.Call].Note(int64(took), int64(took)/throttle.StepTime, 0)
		}
	case "crowd": // others wait for the extension, as many as may; or no more
		for _, t := range s.crowd {
			t.End()
		}
		s.crowd = nil
		for d.HasArg("of") {
			t, _, err := sv.sessions.cfg.Lane.Enter(d.CmdArgs[0].Vals[0], throttle.Cost{Likely: 4_000_000, Most: 4_000_000}, func() {})
			if err != nil {
				break
			}
			s.crowd = append(s.crowd, t)
		}
	case "timers":
		s.say("%d", len(sv.timers))
	case "wait":
		took, err := time.ParseDuration(d.CmdArgs[0].Key)
		require.NoError(t, err)
		s.wait(took)
	case "renewed":
		all := sv.renewals
		sv.renewals = nil
		for _, done := range all {
			done(renewed(d))
		}
	case "revoke":
		s.commit(sv, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: c.id}, true)
	default:
		s.step(t, d, sv, c)
	}
}

// step are the commands of one line.
func (s *story) step(t *testing.T, d *datadriven.TestData, sv *server, c *client) {
	switch d.Cmd {
	case "quiesce":
		s.quiesce()
	case "stick", "free":
		for _, o := range s.servers {
			switch {
			case d.HasArg("server") && o != sv:
			case d.Cmd == "free":
				o.stuck = 0
			default:
				o.stuck |= placement.Of(number(t, d.CmdArgs[0].Key))
			}
		}
	case "sleep", "wake":
		sv.asleep = d.Cmd == "sleep"
	case "forbid", "allow":
		sv.forbids = d.Cmd == "forbid"
	case "cram", "clear":
		sv.crammed = d.Cmd == "cram"
	case "cut", "join":
		s.cut = d.Cmd == "cut"
	case "elect":
		s.elect(s.servers[number(t, d.CmdArgs[0].Key)-1])
	case "fill", "empty":
		alarm := &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType_NOSPACE, Action: pb.AlarmRequest_ACTIVATE}
		if d.Cmd == "empty" {
			alarm.Action = pb.AlarmRequest_DEACTIVATE
		}
		s.commit(sv, command.Alarm, alarm, true)
		s.quiesce()
	case "only":
		s.enforce(s.someone(&authpb.Permission{PermType: authpb.READWRITE, Key: []byte(d.CmdArgs[0].Key)}))
	case "password":
		s.password()
	case "rate":
		s.rate(number(t, d.CmdArgs[0].Key))
	case "drain":
		c.session.Drain()
	case "hangup":
		c.session.Close()
	case "break":
		c.broken = true
	case "where":
		key := d.CmdArgs[0].Key
		s.say("%s lies in partition %d", key, sv.state.Machine.Placement().Partition([]byte(key)))
	case "stop":
		sv.calls.Stop(fault.Stopped)
		sv.state.Replica.Stop(fault.Stopped)
	case "fence":
		require.True(t, sv.state.Machine.Damaged())
	case "lagging":
		s.say("%d", len(sv.sessions.lags.list))
	case "watchers":
		s.say("%d", sv.hub.Stats().Watchers)
	case "waiting":
		s.say("%d requests, %d bytes", c.session.requests, c.session.bytes)
	default:
		d.Fatalf(t, "unknown step %q", d.Cmd)
	}
}

func (s *story) open(sv *server, id int64, d *datadriven.TestData) {
	o := &stoapb.OpenSession{Session: id, Next: 1, PartitionMap: d.HasArg("map")}
	ttl := int64(60)
	d.MaybeScanArgs(s.t, "next", &o.Next)
	d.MaybeScanArgs(s.t, "sent", &o.Sent)
	d.MaybeScanArgs(s.t, "seen", &o.Revision)
	d.MaybeScanArgs(s.t, "ttl", &ttl)
	d.MaybeScanArgs(s.t, "client", &o.Client)
	c, opened := s.begin(sv, ttl, o, requests(s.t, d.Input, 0))
	if m := opened.PartitionMap; m != nil {
		s.say("%d hears of %d partitions", id, m.Partitions)
	}
	c.session.Start()
}

// begin opens a session, of which a lease is granted unless there is one. It has to be started.
func (s *story) begin(sv *server, ttl int64, o *stoapb.OpenSession, watches []session.Item) (*client, *stoapb.Opened) {
	id := o.Session
	if !s.granted[id] {
		s.granted[id] = true
		s.commit(sv, command.SessionOpen, &pb.LeaseGrantRequest{ID: id, TTL: LeaseTTL(ttl)}, true)
		s.quiesce()
	}
	c := &client{w: s.world, id: id}
	s.clients[id] = c
	var opened *stoapb.Opened
	c.session, opened = sv.sessions.Open(Lease{id, LeaseTTL(ttl), s.now}, User{Credential: s.user}, o, watches, c)
	return c, opened
}

func (s *story) ask(c *client, d *datadriven.TestData) {
	var answered uint64
	bytes := 1
	d.MaybeScanArgs(s.t, "answered", &answered)
	d.MaybeScanArgs(s.t, "bytes", &bytes)
	// Who would have to wait for room doesn't.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	switch err := c.session.Take(ctx, requests(s.t, d.Input, bytes), answered); {
	case errors.Is(err, context.Canceled) && c.session.Err() == nil:
		s.say("there is no room")
	case err != nil:
		s.say("refused: %v", err)
	}
}

// requests reads what is asked for, one request, or a run of equal ones, a line.
func requests(t *testing.T, input string, bytes int) []session.Item {
	var all []session.Item
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		first, last, many := strings.Cut(f[0], "-")
		from := number(t, first)
		to := from
		if many {
			to = number(t, last)
		}
		for seq := from; seq <= to; seq++ {
			it := session.NewItems(1)[0]
			it.Seq, it.Bytes = uint64(seq), bytes
			fill(t, &it.Request, f[1:])
			if it.Kind == stoapb.Kind_KIND_UNSPECIFIED {
				it.Done, it.Err = true, errMalformed
			}
			for _, word := range f {
				if rev, ok := strings.CutPrefix(word, "seen="); ok {
					it.Token = int64(number(t, rev))
				}
			}
			all = append(all, it)
		}
	}
	for i := range all {
		all[i].Op.Request = &all[i].Request
	}
	return all
}

// fill makes a request as the services hand it over.
func fill(t *testing.T, r *session.Request, f []string) {
	kind, f := f[0], append(f[1:], "", "")
	r.Kind = stoapb.Kind(stoapb.Kind_value[strings.ToUpper(kind)])
	key := []byte(f[0])
	var end []byte
	for _, word := range f[1:] {
		if level, ok := stoapb.Level_value[strings.ToUpper(word)]; ok {
			r.Level = stoapb.Level(level)
		} else if until, ok := strings.CutPrefix(word, "until="); ok {
			end = []byte(until)
		}
	}
	var body proto.Message
	switch kind {
	case "put":
		if f[1] == "huge" {
			f[1] = strings.Repeat("x", maxRequestBytes)
		}
		body, r.Key = &pb.PutRequest{Key: key, Value: []byte(f[1])}, key
	case "get":
		r.Kind, r.Key = stoapb.Kind_RANGE, key
		if body = (&pb.RangeRequest{Key: key, RangeEnd: end}); end != nil {
			r.Message = body
		}
	case "delete":
		r.Kind = stoapb.Kind_DELETE_RANGE
		r.Message = &pb.DeleteRangeRequest{Key: key, RangeEnd: end}
	case "watch":
		from := 0
		if rev, ok := strings.CutPrefix(f[1], "from="); ok {
			from = number(t, rev)
		}
		r.Message = &pb.WatchCreateRequest{Key: key, RangeEnd: end, StartRevision: int64(from)}
	case "cancel":
		r.Message = &pb.WatchCancelRequest{WatchId: int64(number(t, f[0]))}
	}
	if body == nil {
		body = r.Message
	}
	if body != nil {
		var err error
		r.Body, err = proto.Marshal(body)
		require.NoError(t, err)
	}
}

// Reply implements session.Sink.
func (c *client) Reply(op *session.Op) {
	r, what := op.Request.(*session.Request), ""
	response := r.Response
	if r.Found != nil {
		response = r.Found.Message()
	}
	switch resp := response.(type) {
	case *pb.RangeResponse:
		for _, kv := range resp.Kvs {
			what += fmt.Sprintf(" %s=%s", kv.Key, kv.Value)
		}
	case *pb.DeleteRangeResponse:
		what = fmt.Sprintf(" deleted %d", resp.Deleted)
	case *pb.WatchResponse:
		what = " watch"
		if resp.Canceled {
			what += " canceled " + resp.CancelReason
		}
	}
	if r.Kv.Exists() {
		kv := r.Kv.Message()
		what = fmt.Sprintf(" %s=%s", kv.Key, kv.Value)
	}
	if op.Err != nil {
		what = " " + op.Err.Error()
	} else if op.Revision > 0 {
		what += fmt.Sprintf(" at %d", op.Revision)
	}
	c.words = append(c.words, fmt.Sprintf("%d:%s", op.Seq, what))
}

// Event implements session.Sink.
func (c *client) Event(seq uint64, r *pb.WatchResponse) {
	word := fmt.Sprintf("event of %d:", seq)
	for _, e := range r.Events {
		word += fmt.Sprintf(" %v %s=%s at %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
	}
	if r.Canceled {
		word += " canceled " + r.CancelReason
	}
	c.words = append(c.words, word)
}

// Placement implements session.Sink.
func (c *client) Placement(m *stoapb.PartitionMap) {
	c.words = append(c.words, fmt.Sprintf("a map with %d rules", len(m.Rules)))
}

// Bytes implements session.Sink; a word is one.
func (c *client) Bytes() int { return len(c.words) }

var (
	errBroken    = errors.New("the stream is broken")
	errMalformed = errors.New("the request is malformed")
)

// Flush implements session.Sink.
func (c *client) Flush() error {
	if c.broken {
		return errBroken
	}
	c.w.say("%d <- %s", c.id, strings.Join(c.words, ", "))
	c.words = nil
	return nil
}

func renewed(d *datadriven.TestData) error {
	if d.HasArg("gone") {
		return fmt.Errorf("renewing: %w", fault.LeaseNotFound)
	}
	if d.HasArg("failed") {
		return fault.Timeout
	}
	return nil
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}
