package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Election has one leader at a time: the candidate that has waited longest.
type Election struct {
	client handle
	root   string
	id     string
	lease  clientv3.LeaseID
}

// ErrNoLeader: the election has no leader.
var ErrNoLeader = errors.New("there is no leader")

// NewElection returns the election at a root, for a candidate of this name with
// this lease.
func NewElection(c Client, root, name string, lease clientv3.LeaseID) *Election {
	return &Election{client: handle{c, c}, root: rootOf("election", root), id: fmt.Sprintf("%s-%x", name, int64(lease)), lease: lease}
}

// Leadership is the result of a won campaign.
type Leadership struct {
	// Revision grows from leader to leader. It can fence a leader's writes to
	// other systems: those of an earlier leader are refused after a later
	// one's.
	Revision int64

	lost chan struct{}
	stop context.CancelFunc
	e    *Election
}

// Campaign waits until this candidate leads. When the context ends first, the candidacy is
// given up.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	ch, stop, err := e.stand(ctx)
	if err != nil {
		return nil, fmt.Errorf("recipes: campaigning in %s: %w", e.root, err)
	}
	kv, err := first(ctx, ch)
	stop() // else it is another candidacy after a broken connection: clients open watches again
	if err != nil {
		forget(ctx, e.client, e.root+"candidates/"+e.id)
		return nil, fmt.Errorf("recipes: campaigning in %s: %w", e.root, err)
	}
	l := &Leadership{Revision: kv.CreateRevision, lost: make(chan struct{}), e: e}
	guarding, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.guard(guarding)
	return l, nil
}

func (e *Election) stand(ctx context.Context) (clientv3.WatchChan, context.CancelFunc, error) {
	if e.lease == clientv3.NoLease {
		return nil, nil, errors.New("a candidate needs a lease")
	}
	if err := checkName("candidate", e.id); err != nil {
		return nil, nil, err
	}
	ch, stop, err := open(ctx, e.client, e.root+"campaign/"+e.id)
	if err != nil {
		forget(ctx, e.client, e.root+"candidates/"+e.id)
	}
	return ch, stop, err
}

// guard waits for the end of the leadership, or of the watch that would show it. The leader's key changes with every
// leadership, and its history has what happens while there is no connection.
func (l *Leadership) guard(ctx context.Context) {
	defer close(l.lost)
	defer l.stop()
	for from := l.Revision + 1; from > 0; {
		from = l.watch(ctx, from)
	}
}

// watch returns 0 at the end of the leadership, and the revision to go on at if the one that it was to begin at is compacted.
func (l *Leadership) watch(ctx context.Context, from int64) int64 {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for resp := range l.e.client.Watch(ctx, l.e.root+"leader", clientv3.WithRev(from)) {
		switch {
		case resp.CompactRevision >= from:
			return l.lasts(ctx)
		case resp.Err() != nil || len(resp.Events) > 0:
			return 0
		}
	}
	return 0
}

// lasts returns the revision behind one at which the leadership lasts, or 0.
func (l *Leadership) lasts(ctx context.Context) int64 {
	resp, err := l.e.client.Get(ctx, l.e.root+"leader")
	if err != nil {
		return 0
	}
	if kv := one(resp); kv == nil || kv.ModRevision != l.Revision {
		return 0
	}
	return resp.Header.Revision + 1
}

// Lost is closed when the leadership has ended, for any reason. It is delayed
// by the notification: a leader that is partitioned from the cluster learns of
// it after reconnecting, so it must stop when its lease has expired.
func (l *Leadership) Lost() <-chan struct{} {
	if l.lost == nil {
		never := make(chan struct{})
		close(never)
		return never
	}
	return l.lost
}

// Resign ends the leadership; the next candidate leads at the same revision. If the leadership has been lost it does nothing:
// the candidate may have begun another candidacy.
func (l *Leadership) Resign(ctx context.Context) error {
	if l.e == nil {
		return fmt.Errorf("recipes: resigning: %w", errNoClient)
	}
	leads := clientv3.Compare(clientv3.CreateRevision(l.e.root+"campaign/"+l.e.id), "=", l.Revision)
	if _, err := l.e.client.deleteIf(ctx, leads, l.e.root+"candidates/"+l.e.id); err != nil {
		return fmt.Errorf("recipes: resigning in %s: %w", l.e.root, err)
	}
	l.stop()
	<-l.lost
	return nil
}

// Leader returns the name of the leader, or ErrNoLeader.
func (e *Election) Leader(ctx context.Context) (string, error) {
	resp, err := e.client.Get(ctx, e.root+"leader")
	if err != nil {
		return "", fmt.Errorf("recipes: reading the leader of %s: %w", e.root, err)
	}
	kv := one(resp)
	if kv == nil {
		return "", fmt.Errorf("recipes: reading the leader of %s: %w", e.root, ErrNoLeader)
	}
	name := string(kv.Value)
	if dash := strings.LastIndexByte(name, '-'); dash >= 0 {
		name = name[:dash]
	}
	return name, nil
}
