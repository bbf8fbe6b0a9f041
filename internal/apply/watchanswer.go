package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// WatchAnswer changes a request for a watch according to an extension's answer to it,
// and returns the first event. From the call on, the watch is one of the key that
// the answer is under: that of the answer itself, or the one whose creation the
// client waits for. Without an answer it is the one that was requested, and it also begins
// at the call: others may do at once what the call lets them know that its client waits for.
func WatchAnswer(r *pb.WatchCreateRequest, resp *pb.RangeResponse) *mvccpb.Event {
	if resp == nil {
		return nil // the log was not asked
	}
	behind := resp.GetHeader().GetRevision() + 1
	if len(resp.GetKvs()) == 0 {
		if r.StartRevision == 0 {
			r.StartRevision = behind
		}
		return nil
	}
	kv := resp.GetKvs()[0]
	r.Key, r.RangeEnd, r.StartRevision = kv.GetKey(), nil, behind
	if kv.GetVersion() == 0 {
		return nil
	}
	return &mvccpb.Event{Kv: kv}
}
