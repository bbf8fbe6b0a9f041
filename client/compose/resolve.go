package compose

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// resolve deals with locks that were met. It returns when it is worth trying again: at once if
// they are gone, after a while if their transactions are pending. attempt counts from 0; at is the cluster
// for which the caller waits.
func (l *locker) resolve(ctx context.Context, at int, met []commit.Met, attempt int) error {
	waits := len(met) == 0 // another reason to begin anew: the lease has expired
	for len(met) > 0 {
		if met[0].Err != nil {
			return met[0].Err
		}
		var of, others []commit.Met
		for _, m := range met {
			if m.Err == nil && m.Lock == met[0].Lock && m.Cluster == met[0].Cluster {
				of = append(of, m)
			} else {
				others = append(others, m)
			}
		}
		r := commit.Recover(of[0].Lock.Txn, of[0].Lock.Home, of)
		recoverBy(ctx, l.send, r)
		if r.Found() == commit.Failed {
			return l.unresolved(of[0], r.Err())
		}
		waits, met = waits || r.Found() == commit.Waits, others
	}
	var pause time.Duration
	if waits || attempt >= impatient {
		pause = pauseBefore(attempt)
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-l.ctx.Done():
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return l.clusters[at].named(err, false)
	}
	return nil
}

// unresolved is the error of a lock whose transaction can't be looked at.
func (l *locker) unresolved(m commit.Met, err error) error {
	if !errors.Is(err, errNoCluster) {
		return err
	}
	for _, of := range l.clusters {
		if of.id.Load() == m.Cluster {
			return of.named(fmt.Errorf("%s%s is of transaction %s: %w", commit.LockPrefix, m.Key, m.Lock.Txn, err), false)
		}
	}
	return err
}

// impatient is the number of attempts in a row that may follow without a pause.
const impatient = 3

// pauseBefore is random, so that of two transactions that meet each other one goes first.
func pauseBefore(attempt int) time.Duration {
	most := 4 * time.Millisecond << min(attempt, 6) // 256 ms
	return most/4 + rand.N(most)
}

func recoverBy(ctx context.Context, send func(context.Context, []commit.Request) []commit.Answer, r *commit.Recovery) {
	for rs := r.Next(nil); len(rs) > 0; {
		rs = r.Next(send(ctx, rs))
	}
}

// start begins to look for locks and records that clients have left behind: those that no other
// client happens to meet.
func (l *locker) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweeping || l.closing {
		return
	}
	l.sweeping = true
	l.sweeper.Go(func() {
		s := newSweep(l)
		for pause := sweepEvery / 10; ; pause = sweepEvery {
			select {
			case <-time.After(pause/2 + rand.N(pause)):
				s.once(l.ctx)
			case <-l.ctx.Done():
				return
			}
		}
	})
}

// sweepEvery is the mean time between two looks. What is there at two of them, unchanged, is
// taken for left behind; if it isn't, nothing but time is lost.
const sweepEvery = 10 * time.Second

// sweepMost bounds the keys of one look in one cluster.
const sweepMost = 1000

type sweep struct {
	*locker
	parts  []sweepPart     // by cluster
	silent map[uint64]bool // IDs of clusters that have not answered, in this look: what needs them is left for the next
}

// sweepPart is the keys of a cluster that are looked at: all, or if they are too many, those from one on, until they have been
// looked at twice.
type sweepPart struct {
	from string
	seen map[string]int64 // by key: the revision at which the last look has found it; nil: there was none
}

func newSweep(l *locker) *sweep {
	s := &sweep{locker: l, silent: map[uint64]bool{}}
	for range l.clusters {
		s.parts = append(s.parts, sweepPart{from: commit.Prefix})
	}
	return s
}

func (s *sweep) once(ctx context.Context) {
	clear(s.silent)
	for i, of := range s.clusters {
		s.look(ctx, of, &s.parts[i])
	}
}

func (s *sweep) look(ctx context.Context, of *cluster, p *sweepPart) {
	a, err := s.read(ctx, of, p.from)
	if err != nil {
		return
	}
	before, now := p.seen, map[string]int64{}
	for _, kv := range a.Kvs {
		key := string(kv.Key)
		if now[key] = kv.ModRevision; before[key] == kv.ModRevision {
			s.left(ctx, of, kv)
		}
	}
	switch n := len(a.Kvs); {
	case before != nil && a.More:
		*p = sweepPart{from: string(a.Kvs[n-1].Key) + "\x00"}
	case before != nil && p.from != commit.Prefix:
		*p = sweepPart{from: commit.Prefix}
	default:
		p.seen = now
	}
}

// read reads what transactions have in a cluster, from a key on, at the near member.
func (s *sweep) read(ctx context.Context, of *cluster, from string) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if _, err := of.identity(ctx); err != nil {
		return nil, err
	}
	return of.nearest().Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(commit.Prefix)), clientv3.WithLimit(sweepMost), clientv3.WithSerializable())
}

// left resolves a lock, or completes a transaction that was committed.
func (s *sweep) left(ctx context.Context, of *cluster, kv *mvccpb.KeyValue) {
	var r *commit.Recovery
	if txn, ok := strings.CutPrefix(string(kv.Key), commit.RecordPrefix); ok {
		rec, err := commit.ParseRecord(kv.Value)
		if err != nil || rec.Phase != commit.Committed {
			return
		}
		r = commit.Recover(txn, of.id.Load(), nil)
	} else if met := metIn(of, []*mvccpb.KeyValue{kv}); met[0].Err == nil {
		r = commit.Recover(met[0].Lock.Txn, met[0].Lock.Home, met)
	} else {
		return
	}
	recoverBy(ctx, s.send, r)
}

// send doesn't wait for a cluster again that has kept silent.
func (s *sweep) send(ctx context.Context, rs []commit.Request) []commit.Answer {
	answers := make([]commit.Answer, len(rs))
	var asked []commit.Request
	var places []int
	for i, r := range rs {
		if s.silent[r.Cluster] {
			answers[i] = commit.Answer{Err: ErrSilent, Refused: true}
			continue
		}
		asked, places = append(asked, r), append(places, i)
	}
	if len(asked) == 0 {
		return answers
	}
	for i, a := range s.locker.send(ctx, asked) {
		answers[places[i]] = a
		if noAnswer(a) {
			s.silent[asked[i].Cluster] = true
		}
	}
	return answers
}

// noAnswer reports that no answer came. That a lease has expired is one, and that an extension handles the keys.
func noAnswer(a commit.Answer) bool {
	return a.Err != nil && !a.NoLease && !errors.Is(a.Err, ErrTransactions) && isCutOff(a.Err)
}
