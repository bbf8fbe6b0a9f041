package sidecar

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

var (
	errNotPlain  = errors.New("sidecar: there are extensions")
	errForbidden = errors.New("sidecar: the user may not read a cached prefix any more")
)

// readPoint asks the cluster, for all reads that wait, for a revision that they have to show, and waits
// until all views do.
func (cs *caches) readPoint() (int64, error) {
	ctx, cancel := context.WithTimeout(cs.ctx, questionTimeout)
	defer cancel()
	shown, known := cs.shown()
	cs.m.cacheQuestions.Inc()
	r, err := cs.ask(ctx, shown)
	switch {
	case denied(err):
		cs.drop(ctx, shown)
		return 0, errForbidden
	case err != nil:
		return 0, err
	case r.header.Revision < known.rev || known.cluster != 0 && r.header.ClusterId != known.cluster:
		cs.ws.mu.Lock()
		cs.ws.hub.Fail(unavailable(errHistory))
		cs.ws.mu.Unlock()
		return 0, errHistory
	case r.extensions > 0:
		return 0, errNotPlain
	}
	return r.header.Revision, cs.reach(ctx, r.header.Revision, cs.all()...)
}

// known is what the views tell of the cluster.
type known struct {
	rev     int64
	cluster uint64
}

// shown are the prefixes that are.
func (cs *caches) shown() (all []*cached, k known) {
	for _, p := range cs.all() {
		if v := p.prefix.View(); v != nil {
			all = append(all, p)
			k = known{max(k.rev, v.Revision()), v.Cluster()}
		}
	}
	return all, k
}

// told is the answer to a question.
type told struct {
	header     *pb.ResponseHeader
	extensions int64
}

// ask reads the number of extensions, over the session of reads if there is one: that is with the leader.
func (cs *caches) ask(ctx context.Context, shown []*cached) (told, error) {
	if cs.up.identified() {
		return cs.askAsUser(ctx, shown)
	}
	answer, err := cs.askInSession(ctx)
	if err != nil {
		conn, err := cs.up.conn(false)
		if err != nil {
			return told{}, err
		}
		if answer, err = pb.NewKVClient(conn).Range(ctx, registry()); err != nil {
			return told{}, err
		}
	}
	return told{answer.Header, answer.Count}, nil
}

func (cs *caches) askInSession(ctx context.Context) (*pb.RangeResponse, error) {
	if cs.lanes == nil {
		return nil, errNotTaken
	}
	body, err := proto.Marshal(registry())
	if err != nil {
		return nil, err
	}
	b, err := cs.lanes.do(ctx, &shared{kind: stoapb.Kind_RANGE, body: body})
	if err != nil {
		return nil, err
	}
	answer := new(pb.RangeResponse)
	return answer, proto.Unmarshal(b, answer)
}

// askAsUser also reads something of each prefix: that is refused to a user who may not read all of it.
func (cs *caches) askAsUser(ctx context.Context, shown []*cached) (told, error) {
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{reading(registry())}}
	for _, p := range shown {
		txn.Success = append(txn.Success, reading(p.count()))
	}
	conn, err := cs.up.conn(false)
	if err != nil {
		return told{}, err
	}
	answer, err := pb.NewKVClient(conn).Txn(ctx, txn)
	if err != nil {
		return told{}, err
	}
	return told{answer.Header, answer.Responses[0].GetResponseRange().GetCount()}, nil
}

func reading(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func (p *cached) count() *pb.RangeRequest {
	key, end := p.prefix.Range()
	return &pb.RangeRequest{Key: key, RangeEnd: end, CountOnly: true}
}

// denied reports whether the sidecar's user may not read something, or isn't one any more.
func denied(err error) bool {
	known := rpctypes.Error(err)
	return errors.Is(known, rpctypes.ErrPermissionDenied) || errors.Is(known, rpctypes.ErrUserEmpty) || dismissed(err)
}

// noPasswordUser is the error of a user who was added again without a password. etcd's clients have no name for it.
const noPasswordUser = "auth: authentication failed, password was given for no password user"

// dismissed reports whether the sidecar's user was deleted, or has another password, or none.
func dismissed(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed) || status.Convert(err).Message() == noPasswordUser
}

// drop has the prefixes that the user may not read any more show nothing. It is tried again to watch them.
func (cs *caches) drop(ctx context.Context, shown []*cached) {
	for _, p := range shown {
		if _, err := cs.question.get(ctx, p.count()); denied(err) {
			cs.ws.mu.Lock()
			p.End(err.Error())
			cs.ws.mu.Unlock()
		}
	}
}

const minAskProgress = time.Millisecond

// reach waits until everything at or below a revision has come for the views of some prefixes.
func (cs *caches) reach(ctx context.Context, rev int64, of ...*cached) error {
	pause := minAskProgress
	again := time.NewTimer(pause)
	defer again.Stop()
	for ask := true; ; {
		cs.ws.mu.Lock()
		short := lack(of, rev)
		if short && ask {
			cs.ws.hub.Want(rev)
		}
		changed := cs.change()
		cs.ws.mu.Unlock()
		if !short {
			return nil
		}
		select {
		case <-changed:
			ask = false // a member that is behind would be asked all the time
		case <-again.C:
			ask = true
			pause = min(2*pause, askAgain)
			again.Reset(pause)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lack reports whether a view lacks something at or below a revision.
func lack(of []*cached, rev int64) bool {
	for _, p := range of {
		if v := p.prefix.View(); v != nil && v.Revision() < rev {
			return true
		}
	}
	return false
}

// verify asks now and then, and after the stream of watches was opened again: reads that are serializable
// would not notice that the cluster has another history, or the user other permissions.
func (cs *caches) verify() {
	if !cs.up.ready(cs.ctx) {
		return
	}
	every := time.NewTicker(verifyEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-cs.ws.connected:
		case <-cs.ctx.Done():
			return
		}
		if _, err := cs.point.ask(cs.ctx); err != nil && cs.ctx.Err() == nil && !errors.Is(err, errNotPlain) {
			cs.lg.Warn("failed to verify cached prefixes", zap.Error(err))
		}
	}
}
