package node

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/placement"
)

// etcdNames are those under which etcd counts applied requests; "" stands for "unknown".
var etcdNames = [command.Kinds]string{
	command.Put: "Put", command.DeleteRange: "DeleteRange", command.Txn: "Txn", command.Compact: "Compaction",
	command.LeaseGrant: "LeaseGrant", command.SessionOpen: "LeaseGrant", command.LeaseRevoke: "LeaseRevoke",
	command.LeaseCheckpoint: "LeaseCheckpoint", command.Alarm: "Alarm", command.MemberPublish: "ClusterMemberAttrSet",
	command.MemberAnnounce: "ClusterMemberAttrSet", command.ClusterVersion: "ClusterVersionSet",
}

// meter implements apply.Meter.
type meter struct {
	n   *Node
	c   *core
	ops byKind
}

// byKind are histograms of the kinds of commands, by success.
type byKind [command.Kinds]*[2]*metrics.Histogram

func newByKind(of func(name string) *[2]*metrics.Histogram) (h byKind) {
	for k := range h {
		h[k] = of(etcdNames[k])
	}
	return h
}

// Now implements apply.Meter.
func (m *meter) Now() int64 { return m.n.clock() }

// clock is nanoseconds since the start. It costs half as much as time.Now.
func (n *Node) clock() int64 { return int64(time.Since(n.since)) }

// Applied implements apply.Meter. Commands of one entry are timed together: to time each
// would cost more than it costs to apply some.
func (m *meter) Applied(e *command.Entry, t apply.Tally, nanoseconds int64) {
	if len(e.Commands) == 0 {
		return
	}
	each := time.Duration(nanoseconds / int64(len(e.Commands)))
	for k, all := range t.All {
		if all == 0 {
			continue
		}
		failed := t.Failed[k]
		if failed < all {
			m.ops[k][1].ObserveMany(each, uint64(all-failed))
		}
		if failed > 0 {
			m.ops[k][0].ObserveMany(each, uint64(failed))
		}
	}
	if !m.n.hasRoom(m.c, 0) && slices.ContainsFunc(e.Commands, takesRoom) {
		m.n.outgrown()
	}
	if limit := m.n.cfg.WarningApply; limit > 0 && nanoseconds > int64(limit) {
		m.n.cfg.Metrics.Server.SlowApplies.Inc()
		m.n.warnOfSlowEntry(e, time.Duration(nanoseconds))
	}
}

// Sampled implements apply.Meter.
func (m *meter) Sampled(at *placement.Spot, weight int64) { m.n.load.Sample(at, weight) }

// warnOfSlowEntry describes the first request, and counts the others. The entry is not
// kept: it is cleared once it has been applied.
func (n *Node) warnOfSlowEntry(e *command.Entry, took time.Duration) {
	request, requests := describe(&e.Commands[0]), len(e.Commands)
	n.lines.add(func(lg *zap.Logger) {
		lg.Warn("apply request took too long", zap.Duration("took", took), zap.Duration("expected-duration", n.cfg.WarningApply),
			zap.String("prefix", ""), zap.String("request", request), zap.Int("requests", requests))
	})
}

// describe renders a command as etcd does, with sizes in place of values.
func describe(c *command.Command) string {
	kind, body := c.Inner()
	r := &pb.InternalRaftRequest{}
	var into proto.Message
	switch kind {
	case command.Put:
		r.Put = &pb.PutRequest{}
		into = r.Put
	case command.DeleteRange:
		r.DeleteRange = &pb.DeleteRangeRequest{}
		into = r.DeleteRange
	case command.Txn:
		r.Txn = &pb.TxnRequest{}
		into = r.Txn
	case command.Compact:
		r.Compaction = &pb.CompactionRequest{}
		into = r.Compaction
	case command.LeaseGrant, command.SessionOpen:
		r.LeaseGrant = &pb.LeaseGrantRequest{}
		into = r.LeaseGrant
	case command.LeaseRevoke:
		r.LeaseRevoke = &pb.LeaseRevokeRequest{}
		into = r.LeaseRevoke
	default:
		return kind.String()
	}
	if err := proto.Unmarshal(body, into); err != nil {
		return kind.String()
	}
	return (&pb.InternalRaftStringer{Request: r}).String()
}

// Called implements apply.Meter.
func (m *meter) Called(name string, nanoseconds int64, out *extension.Outcome, err error) {
	m.logCall(name, out, err)
	if err == nil && !m.n.hasRoom(m.c, 0) && out.TakesSpace() {
		m.n.outgrown()
	}
	if tell := m.n.cfg.Observe.ExtensionCalled; tell != nil {
		tell(extensionCall(name, nanoseconds, out, err))
	}
}

func extensionCall(name string, nanoseconds int64, out *extension.Outcome, err error) ExtensionCall {
	c := ExtensionCall{Name: name, Took: time.Duration(nanoseconds), Steps: out.Usage.Steps}
	switch fault.CodeOf(err) {
	case 0:
		c.Writes = len(out.Writes)
	case fault.ExtensionLimit.Code():
		c.Failed = "limit"
	case fault.NoSpace.Code():
		c.Failed = "space"
	default:
		c.Failed = "script"
	}
	return c
}

// requested notes how long a request that came here took, until its command was answered.
func (n *Node) requested(kind command.Kind, began int64, err error) {
	n.requests[kind][success(err)].Observe(time.Duration(n.clock() - began))
}

// noteRange counts a Range, and logs it if it was slow.
func (n *Node) noteRange(r *pb.RangeRequest, resp *kvwire.RangeResponse, began int64, err error) {
	took := time.Duration(n.clock() - began)
	n.ranges[success(err)].Observe(took)
	if n.cfg.WarningApply <= 0 || took <= n.cfg.WarningApply {
		return
	}
	n.warnOfSlowRead("read-only range ", r, took, err, func() string {
		return fmt.Sprintf("range_response_count:%d size:%d", len(resp.Kvs), resp.Size())
	})
}

// noteReadTxn is noteRange for a transaction.
func (n *Node) noteReadTxn(r *pb.TxnRequest, resp *pb.TxnResponse, began int64, err error) {
	took := time.Duration(n.clock() - began)
	n.readTxns[success(err)].Observe(took)
	if n.cfg.WarningApply <= 0 || took <= n.cfg.WarningApply {
		return
	}
	n.warnOfSlowRead("read-only txn ", pb.NewLoggableTxnRequest(r), took, err, func() string {
		return fmt.Sprintf("responses:%d size:%d", len(resp.Responses), proto.Size(resp))
	})
}

// warnOfSlowRead renders the request and its response only if the log takes the line.
func (n *Node) warnOfSlowRead(prefix string, request fmt.Stringer, took time.Duration, err error, response func() string) {
	n.cfg.Metrics.Server.SlowApplies.Inc()
	line := n.log.Check(zap.WarnLevel, "apply request took too long")
	if line == nil {
		return
	}
	size := ""
	if err == nil {
		size = response()
	}
	line.Write(zap.Duration("took", took), zap.Duration("expected-duration", n.cfg.WarningApply),
		zap.String("prefix", prefix), zap.String("request", request.String()), zap.String("response", size), zap.Error(err))
}

// success is the index into a pair of histograms.
func success(err error) int {
	if err != nil {
		return 0
	}
	return 1
}
