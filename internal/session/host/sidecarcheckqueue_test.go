package host

import (
	"errors"
	"fmt"
	"io"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// oldest is the owner's key of a lock or an election, at a revision; nil for none.
func (a *sidecarApp) oldest(name string, rev int64) (first *mvccpb.KeyValue) {
	for _, kv := range a.at.mine(&a.w.cluster.ledger, name+"/", clientv3.GetPrefixRangeEnd(name+"/"), rev) {
		if first == nil || kv.CreateRevision < first.CreateRevision {
			first = kv
		}
	}
	return first
}

// sometime tells whether something was so at one of the revisions from one through another.
func (w *sidecarWorld) sometime(from, through int64, so func(rev int64) bool) bool {
	for rev := from; rev <= max(from, through); rev++ { // not each revision is one of a change
		if so(rev) {
			return true
		}
	}
	return false
}

// checkQueue: an answer says what was so at its revision, or, without one of that, at some time between call and answer.
func (a *sidecarApp) checkQueue(d *queueCall) {
	found := func(format string, args ...any) {
		a.w.found("app %d: %v: "+format, append([]any{a.id, d}, args...)...)
	}
	a.w.counts.Queued++
	if !d.answered {
		found("no answer")
		return
	}
	if written := a.w.cluster.ledger.written(a.at.Namespace+d.key, d.value); len(written) > 1 {
		found("it took effect at %v", written)
	}
	if d.err != nil {
		if reason := a.unexpected(d); reason != "" {
			found("%s", reason)
		}
		return
	}
	a.w.counts.Held++
	if d.rev < d.floor && d.kind != "campaign" {
		found("%d had been told before", d.floor)
	}
	own := a.at.named(nonNil(a.w.cluster.ledger.at(a.at.Namespace+d.key, d.rev)))
	switch oldest := a.oldest(d.name, d.rev); d.kind {
	case "lock":
		if oldest == nil || string(oldest.Key) != d.key || d.key != fmt.Sprintf("%s/%x", d.name, d.lease) {
			found("the owner is %v", oldest)
		}
	case "unlock":
		if len(own) > 0 {
			found("there is %v", own)
		}
	case "resign":
		if len(own) > 0 && own[0].CreateRevision == d.since {
			found("there is %v", own)
		}
	case "campaign":
		if !a.w.sometime(d.since, d.reached, func(rev int64) bool {
			oldest := a.oldest(d.name, rev)
			return oldest != nil && string(oldest.Key) == d.key && oldest.CreateRevision == d.since
		}) || d.key != fmt.Sprintf("%s/%x", d.name, d.lease) {
			found("it has never led")
		}
	case "proclaim":
		if len(own) == 0 || string(own[0].Value) != d.value || own[0].CreateRevision != d.since || own[0].ModRevision != d.rev {
			found("there is %v", own)
		}
	case "leader":
		if !proto.Equal(oldest, d.kv) {
			found("the leader is %v", oldest)
		}
	}
}

func nonNil(kv *mvccpb.KeyValue) []*mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return []*mvccpb.KeyValue{kv}
}

// unexpected says what is wrong with an error; nothing if it is one that there has to be. What etcd has a text for comes as that text.
func (a *sidecarApp) unexpected(d *queueCall) string {
	text, code := d.err.Error(), codeOf(d.err)
	own := func(rev int64) bool {
		kv := a.w.cluster.ledger.at(a.at.Namespace+d.key, rev)
		return kv != nil && kv.CreateRevision == d.since
	}
	switch {
	case code == codes.DeadlineExceeded || code == codes.Canceled:
	case strings.Contains(text, "election: no leader"):
		if !a.w.sometime(d.floor, d.reached, func(rev int64) bool { return a.oldest(d.name, rev) == nil }) {
			return "there was one all the time"
		}
	case strings.Contains(text, "election: not leader") && d.kind == "proclaim":
		if !a.w.sometime(d.floor, d.reached, func(rev int64) bool { return !own(rev) }) {
			return "it led all the time"
		}
	case (strings.Contains(text, "election: not leader") || strings.Contains(text, "mutex: session is expired")) && (d.kind == "campaign" || d.kind == "lock"):
	case strings.Contains(text, "requested lease not found"), strings.Contains(text, "database space exceeded"):
	case a.governed(text, d.ended):
	case code == codes.Unavailable, strings.Contains(text, "etcdserver: "), errors.Is(d.err, io.EOF):
		if !a.w.disturbed(d.begun, d.ended) {
			return "nothing was in its way"
		}
	default:
		return "no such error is documented"
	}
	return ""
}

// checkObserved: what is told of an election is its leader, in order, and in the end the present one.
func (a *sidecarApp) checkObserved(o *observed) {
	found := func(format string, args ...any) {
		a.w.found("app %d: %v: "+format, append([]any{a.id, o}, args...)...)
	}
	rev := o.floor
	var last *mvccpb.KeyValue
	for i, r := range o.notes {
		a.w.counts.Observed++
		if r.Header.Revision < rev {
			found("note %d is of %d, behind %d", i, r.Header.Revision, rev)
		}
		rev, last = r.Header.Revision, r.Kv
		if !proto.Equal(a.oldest(o.name, rev), last) && !proto.Equal(a.oldest(o.name, last.ModRevision), last) {
			found("note %d is %v, the leader was %v", i, r, a.oldest(o.name, rev))
		}
	}
	all := a.w.cluster.ledger.all
	if now := a.oldest(o.name, all[len(all)-1].ModRevision); o.whole && now != nil && !proto.Equal(now, last) {
		found("the leader is %v", now)
	}
	if code := codeOf(o.err); code != codes.Canceled && !a.governed(o.err.Error(), o.over) && (code != codes.Unavailable && !strings.Contains(o.err.Error(), "etcdserver: ") || !a.w.disturbed(o.over, o.over)) {
		found("nothing has ended it")
	}
}

// queued tells whether a key of a lock or an election comes from a call of one of the programs. Those with the same lease have the same key, so it
// may be that of any whose user had the right to it.
func (w *sidecarWorld) queued(kv *mvccpb.KeyValue) bool {
	var denied func()
	for _, a := range w.apps {
		for _, d := range a.queues {
			if a.at.Namespace+fmt.Sprintf("%s/%x", d.name, d.lease) != string(kv.Key) || d.floor >= kv.ModRevision {
				continue
			}
			enters := d.kind == "lock" || d.kind == "campaign"
			switch {
			case kv.Version == 0:
				if d.kind == "unlock" || d.kind == "resign" || enters && d.err != nil {
					return true
				}
			case d.kind == "lock" && len(kv.Value) == 0, (d.kind == "campaign" || d.kind == "proclaim") && string(kv.Value) == d.value:
				if put := (&pb.PutRequest{Key: kv.Key}); !w.plan.Users || w.rules.at(w.cluster.ledger.rights[kv.ModRevision]).permits(a.user(), put) {
					return kv.Lease == int64(d.lease)
				}
				denied = func() {
					w.found("app %d: %v: it took effect at %d, where %q had no right to it", a.id, d, kv.ModRevision, a.user())
				}
			}
		}
	}
	if denied != nil {
		denied()
	}
	return denied != nil
}
