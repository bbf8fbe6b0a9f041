package adversary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// call is one generated request, or the messages of one stream.
type call struct {
	method   *method
	requests []proto.Message
	token    string // "": the adversary's own
	none     bool   // no token at all
	metadata []string
	way      way
}

// way is how a call comes to a server.
type way string

const (
	overGRPC      way = "gRPC"
	overHTTP      way = "HTTP" // as JSON
	overWebsocket way = "a websocket"
)

func newCall(g generator, m *method) *call {
	c := &call{method: m, requests: m.requests(g)}
	switch g.IntN(10) {
	case 0:
		c.none = true
	case 1:
		c.token = pick(g, "x", "abcdefghijklmnop.1", "Bearer abc", "eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6MX0.", "\x01")
	}
	if g.IntN(3) == 0 {
		c.metadata = append(c.metadata, "stoa-client-id", pick(g, nobody, nobody+"/1", "someone", "root", ""))
	}
	if g.IntN(6) == 0 {
		c.metadata = append(c.metadata, "stoa-lease", pick(g, "3e9", "1", "zz"))
	}
	if g.IntN(6) == 0 {
		c.metadata = append(c.metadata, "hasleader", "true", "stoa-remaining-ttl", "1")
	}
	c.way = overGRPC
	switch g.IntN(8) {
	case 0:
		if m.path != "" && !endless[m.name] {
			c.way = overHTTP
		}
	case 1:
		if m.path != "" {
			c.way = overWebsocket
		}
	}
	if m.onPeerPort {
		for _, key := range []string{"stoa-protocol", "stoa-cluster", "stoa-from", "stoa-to", "stoa-incarnation", "stoa-partitions", "stoa-data", "stoa-starts", "stoa-oldest", "stoa-newest"} {
			if g.IntN(5) > 0 {
				c.metadata = append(c.metadata, key, pick(g, "1", "2", "3", "0", "zz", "ffffffffffffffff"))
			}
		}
	}
	return c
}

func (c *call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (token %q, none %v, %q, over %s)", c.method.name, c.token, c.none, c.metadata, c.way)
	for _, r := range c.requests {
		fmt.Fprintf(&b, "\n  {%s}", prototext.MarshalOptions{}.Format(r))
	}
	return b.String()
}

// callTime bounds calls that end by themselves.
const callTime = 20 * time.Second

// ask makes the call of one of the twins, and returns what it was told. A stream that
// doesn't end is left after it was idle for some time.
func (c *call) ask(t *testing.T, w *twin, idle time.Duration) string {
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	token := c.token
	if token == "" {
		token = w.token
	}
	switch c.way {
	case overHTTP:
		return c.throughGateway(ctx, t, w, token)
	case overWebsocket:
		return c.throughWebsocket(ctx, w, token, idle)
	}
	if !c.none {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, c.metadata...)
	conn := w.conn
	if c.method.onPeerPort {
		conn = w.peer
	}
	if !c.method.manyIn && !c.method.manyOut {
		out := c.method.out.New().Interface()
		err := conn.Invoke(ctx, c.method.name, c.requests[0], out)
		return told(out, err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.method.name)
	if err != nil {
		return told(nil, err)
	}
	for _, r := range c.requests {
		if stream.SendMsg(r) != nil {
			break // the reason comes with what is received
		}
	}
	_ = stream.CloseSend()
	return c.listen(stream, cancel, idle)
}

// listen collects what a stream says until it ends, or, if it need not, is idle.
func (c *call) listen(stream grpc.ClientStream, leave func(), idle time.Duration) string {
	left := false
	var mu sync.Mutex
	timer := time.AfterFunc(time.Hour, func() {
		mu.Lock()
		left = true
		mu.Unlock()
		leave()
	})
	defer timer.Stop()
	var all []string
	for {
		if endless[c.method.name] {
			timer.Reset(idle)
		}
		out := c.method.out.New().Interface()
		err := stream.RecvMsg(out)
		mu.Lock()
		gone := left
		mu.Unlock()
		switch {
		case err == nil:
			all = append(all, told(out, nil))
			continue
		case errors.Is(err, io.EOF):
			all = append(all, "end")
		case gone:
			all = append(all, "open")
		default:
			all = append(all, told(nil, err))
		}
		break
	}
	if strings.HasPrefix(c.method.name, "/stoa.v1.Sessions/") {
		all = pieces(all) // how replies are put into batches is a matter of time
	}
	return strings.Join(all, "\n")
}

// pieces joins batches, empty ones left out.
func pieces(all []string) (rest []string) {
	for _, s := range all {
		for line := range strings.SplitSeq(s, "\x00") {
			if line != "" {
				rest = append(rest, line)
			}
		}
	}
	return rest
}

// told is an answer without what is forgiven.
func told(m proto.Message, err error) string {
	if err != nil {
		st := status.Convert(err)
		return fmt.Sprintf("%v: %s", st.Code(), st.Message())
	}
	if batch, ok := m.(*stoapb.ServerBatch); ok {
		return toldInSession(batch)
	}
	forgive(m.ProtoReflect(), always)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %x", m.ProtoReflect().Descriptor().Name(), b) // prototext isn't stable
}

// toldInSession decodes the bodies of replies, which have headers. The parts are divided by
// zero bytes.
func toldInSession(batch *stoapb.ServerBatch) string {
	var parts []string
	if o := batch.GetOpened(); o != nil {
		parts = append(parts, told(o, nil))
	}
	if m := batch.GetPartitionMap(); m != nil {
		parts = append(parts, told(m, nil))
	}
	for _, r := range batch.GetReplies() {
		for _, body := range []proto.Message{&pb.WatchResponse{}, &pb.RangeResponse{}, &pb.TxnResponse{}} {
			if proto.Unmarshal(r.Body, body) == nil && len(body.ProtoReflect().GetUnknown()) == 0 {
				forgive(body.ProtoReflect(), always)
				if b, err := proto.Marshal(body); err == nil {
					r.Body = b
					break
				}
			}
		}
		parts = append(parts, told(r, nil))
	}
	return strings.Join(parts, "\x00")
}

// both asks the twins at once, and reports what differs. Answers that do are asked for
// again, at leisure: the machine may have been busy, or another stream of the adversary in
// between.
func (c *call) both(t *testing.T, twins [2]*twin) (answers [2]string, same bool) {
	for _, idle := range []time.Duration{20 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second} {
		var all sync.WaitGroup
		for i, w := range twins {
			all.Go(func() { answers[i] = c.ask(t, w, idle) })
		}
		all.Wait()
		if c.equal(answers[0], answers[1]) || c.method.onPeerPort { // there, servers say who they are
			return answers, true
		}
	}
	return answers, false
}

// equal compares two answers. A session that ends with an error drops the replies that are under
// way: how many have come before is a matter of time.
func (c *call) equal(a, b string) bool {
	if a == b || !strings.HasPrefix(c.method.name, "/stoa.v1.Sessions/") {
		return a == b
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	last := len(x) - 1
	if x[last] != y[len(y)-1] || x[last] == "end" || x[last] == "open" {
		return false
	}
	n := min(last, len(y)-1)
	return slices.Equal(x[:n], y[:n])
}

// secrets are in no answer: what only hidden keys and values have in them.
var secrets = []string{"s3cr3t", "l3ased", "d33p"}

func leaks(answer string) bool {
	return slices.ContainsFunc(secrets, func(s string) bool {
		return strings.Contains(answer, s) || strings.Contains(answer, fmt.Sprintf("%x", s))
	})
}
