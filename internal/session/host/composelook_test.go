package host

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
)

// composedLook is what a client was told of leases: of the one that it had, and which there are.
type composedLook struct {
	n       int64 // when it began
	h       *composedLease
	says    *clientv3.LeaseTimeToLiveResponse // nil: it failed
	all     []clientv3.LeaseStatus
	listed  bool
	over    []*composedLease // those of the app that were gone before
	reached []int64          // the clusters, when it was told
}

// look asks for the time and the keys of the lease, and for all leases.
func (a *composedApp) look() {
	l := &composedLook{n: a.w.next(), h: a.held}
	for _, h := range a.leases {
		if h.gone {
			l.over = append(l.over, h)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), composedHang)
	defer cancel()
	of := new(*compose.ClusterError)
	says, err := a.asks().TimeToLive(ctx, l.h.id, clientv3.WithAttachedKeys())
	switch err = a.told(err); {
	case err == nil:
		l.says = says
	case ctx.Err() != nil || !errors.As(err, of):
		a.w.found("app %d: the time of %v: %v", a.id, l.h, err)
	}
	all, err := a.asks().Leases(ctx)
	switch err = a.told(err); {
	case err == nil:
		l.all, l.listed = all.Leases, true
	case ctx.Err() != nil || !errors.As(err, of):
		a.w.found("app %d: the leases: %v", a.id, err)
	}
	l.reached = a.w.reached()
	a.looks = append(a.looks, l)
}

// checkLook: a lease that nothing has ended has time and all its keys, and is in the list; one that was revoked is not.
func (a *composedApp) checkLook(l *composedLook) {
	w := a.w
	w.counts.Looks++
	has := func(h *composedLease) bool {
		return slices.ContainsFunc(l.all, func(s clientv3.LeaseStatus) bool { return s.ID == h.id })
	}
	if l.listed && l.h.lasts() && !has(l.h) {
		w.found("app %d: %v isn't among the leases", a.id, l.h)
	}
	for _, h := range l.over {
		if has(h) {
			w.found("app %d: %v is among the leases", a.id, h)
		}
	}
	if l.says == nil {
		return
	}
	if ttl := l.says.TTL; l.h.lasts() && (ttl < 0 || ttl > l.says.GrantedTTL || l.says.GrantedTTL != l.h.ttl) || ttl > l.h.ttl {
		w.found("app %d: %v has %d s of %d", a.id, l.h, ttl, l.says.GrantedTTL)
	}
	for _, name := range l.says.Keys {
		if r := w.roads.of(string(name)); r == nil || !w.hadLease(r.cluster, r.there(string(name)), l) {
			w.found("app %d: %v is said to have %q", a.id, l.h, name)
		}
	}
	if !l.h.lasts() {
		return
	}
	for _, d := range a.deeds {
		if d.held != l.h || d.effect == 0 || d.err != nil || d.heard == 0 || d.heard >= l.n {
			continue
		}
		r := w.roads.of(d.key)
		key := r.there(d.key)
		kv := w.clusters[r.cluster].ledger.at(key, l.reached[r.cluster])
		if kv == nil || kv.ModRevision != d.effect { // it was put again, or deleted
			continue
		}
		if !slices.ContainsFunc(l.says.Keys, func(name []byte) bool { return slices.Contains(w.roads.names(r.cluster, key), string(name)) }) {
			w.found("app %d: %v isn't said to have %q, put by %v", a.id, l.h, d.key, d)
		}
	}
}

// hadLease tells whether a key has had a lease before its client was told so.
func (w *composedWorld) hadLease(cluster int, key string, l *composedLook) bool {
	for _, kv := range w.clusters[cluster].ledger.byKey[key] {
		if kv.Lease == int64(l.h.id) && kv.ModRevision <= l.reached[cluster] {
			return true
		}
	}
	return false
}

// What etcd's clients ask of leases, as package node answers it.

const timeToLiveMethod = stressMethod + 1

// LeaseTimeToLive implements rpc.Lessor.
func (f front) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	p := f.s.process.Load()
	if p.down.Load() {
		return nil, fault.Stopped
	}
	body, err := p.callLeader(ctx, timeToLiveMethod, binary.AppendVarint(nil, r.ID), (*rigCore).timeToLive)
	if err != nil {
		return nil, err
	}
	resp := new(pb.LeaseTimeToLiveResponse)
	if err := proto.Unmarshal(body, resp); err != nil {
		return nil, err
	}
	if !r.Keys {
		resp.Keys = nil
	}
	return resp, nil
}

// timeToLive answers on the leader.
func (c *rigCore) timeToLive(body []byte, reply func([]byte, error)) {
	id, _ := binary.Varint(body)
	c.Replica.ReadPoint(c.placed.All(), func(err error) {
		if err != nil {
			reply(nil, err)
			return
		}
		go func() {
			l, found, err := c.Machine.Lease(id)
			resp := lease.Gone(id, c.Replica.Revision())
			if err == nil && found {
				left, known := c.p.expirer.Remaining(id, time.Now())
				resp.TTL, resp.GrantedTTL = int64(left.Seconds()), l.TTL
				if resp.Keys, err = c.Machine.LeaseKeys(id, auth.Own, (*auth.User).MayRead); !known {
					err = fault.NotLeader
				}
			}
			if err != nil {
				reply(nil, err)
				return
			}
			out, err := proto.Marshal(resp)
			reply(out, err)
		}()
	})
}

// LeaseLeases implements rpc.Lessor.
func (f front) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest, sessions bool) (*pb.LeaseLeasesResponse, error) {
	return routed(ctx, f, func(_ *rigCore, _ uint64) (*pb.LeaseLeasesResponse, error) {
		c, err := f.strict(ctx, placement.Of(0))
		if err != nil {
			return nil, err
		}
		list, err := c.Machine.Granted(sessions)
		if err != nil {
			return nil, err
		}
		resp := &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: c.Replica.Revision()}}
		for _, l := range list {
			resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.ID})
		}
		return resp, nil
	})
}
