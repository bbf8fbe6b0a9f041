package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

// Ask introduces this server to a member and returns the answer.
type Ask func(ctx context.Context, to Member, q *peerpb.Introduction) (*peerpb.Introduction, error)

// The interval at which the others are asked, and the time after which missing
// members are logged.
const (
	firstPause  = 50 * time.Millisecond
	maxPause    = time.Second
	reportAfter = 3 * time.Second
)

// Join returns when this server may take part in its cluster, with the number
// of partitions, or with the error for which it never may. It asks until one of
// these is known.
func (r *Registry) Join(ctx context.Context, ask Ask) (partitions int, err error) {
	wait := waiting{r: r, began: time.Now()}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if partitions, ok, err := r.admit(); ok || err != nil {
			return partitions, err
		}
		missing, err := r.askAll(ctx, ask)
		if err != nil {
			return 0, err
		}
		if partitions, ok, err := r.admit(); ok || err != nil {
			return partitions, err
		}
		if err := wait.pause(ctx, pause, missing); err != nil {
			return 0, err
		}
	}
}

// waiting is one wait for other members.
type waiting struct {
	r     *Registry
	began time.Time
	told  string // what is missing, as it was logged last
}

// pause waits until the others should be asked again, and logs what is missing if that has
// lasted and has changed.
func (w *waiting) pause(ctx context.Context, pause time.Duration, missing []string) error {
	if now := strings.Join(missing, "; "); now != w.told && time.Since(w.began) > reportAfter {
		w.told = now
		w.r.log.Warn("waiting for other members, before this one may take part in the cluster",
			zap.Int("members", len(w.r.self.Members)), zap.Strings("missing", missing))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.r.news:
	case <-time.After(pause):
	}
	return nil
}

// admit applies the rule to the record, and makes the outcome durable.
func (r *Registry) admit() (partitions int, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begins := !r.self.Existing && canBootstrap(r.rec, len(r.self.Members))
	if !begins && len(r.vouched) < vouchersNeeded(len(r.self.Members)) {
		return 0, false, nil
	}
	rec := r.rec.clone()
	rec.Admitted, rec.Partitions = true, r.self.Partitions
	if err := r.write(&rec); err != nil {
		return 0, false, err
	}
	r.log.Info("admitted to the cluster", zap.Stringer("cluster-id", rec.Cluster), zap.Stringer("local-member-id", rec.Member),
		zap.Int("partitions", rec.Partitions), zap.Bool("begins-the-cluster", begins), zap.Int("vouchers", len(r.vouched)))
	return rec.Partitions, true, nil
}

// askAll asks all others once. It returns the reason for each answer that
// doesn't count, or a final refusal.
func (r *Registry) askAll(ctx context.Context, ask Ask) (missing []string, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range r.self.Members {
		if m.ID == r.self.Member {
			continue
		}
		all.Go(func() {
			e := r.askOne(ctx, ask, m)
			if e == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			var never *never
			if errors.As(e, &never) && err == nil {
				err = e
			}
			missing = append(missing, fmt.Sprintf("%s: %v", m, e))
		})
	}
	all.Wait()
	slices.Sort(missing)
	return missing, err
}

func (r *Registry) askOne(ctx context.Context, ask Ask, m Member) error {
	r.mu.Lock()
	q := r.own(m.ID)
	r.mu.Unlock()
	a, err := ask(ctx, m, q)
	if err != nil {
		return err
	}
	return r.learn(m, a)
}

// never is a refusal that no waiting will change.
type never struct{ text string }

func (e *never) Error() string { return e.text }

// refusedBy explains a refusal to the operator of this server.
func (r *Registry) refusedBy(by Member, a *peerpb.Introduction) error {
	dir := r.dir
	switch a.GetRefusal() {
	case peerpb.Refusal_OTHER_DATA:
		text := fmt.Sprintf("member %s has already been bootstrapped: %s has met %s with another data directory than %s. "+
			"Put its data back, or remove the member and add it again; a member that has lost its data must not vote again", r.rec.Member, by, r.self.Name, dir)
		if !a.GetAdmitted() { // perhaps none is, and no member can be removed yet
			text += ". If the cluster is new, and none of its members has served yet, remove the data directories of all of them, and start them again"
		}
		return &never{text}
	case peerpb.Refusal_OLDER_DATA:
		return &never{fmt.Sprintf("%s is an older copy of the data directory of member %s: %s has met it with a later one. "+
			"Put the latest back, or remove the member and add it again", dir, r.rec.Member, by)}
	case peerpb.Refusal_NO_MEMBER:
		return fmt.Errorf("it doesn't have member %s (%s) in its list of members, or not yet", r.rec.Member, r.self.Name)
	case peerpb.Refusal_REMOVED:
		return &never{fmt.Sprintf("member %s (%s) was removed from the cluster, says %s: add it again (member add), and start it with an empty data directory instead of %s",
			r.rec.Member, r.self.Name, by, dir)}
	case peerpb.Refusal_OTHER_VERSION:
		if err := r.checkVersion(a); err != nil {
			return err
		}
	case peerpb.Refusal_OTHER_MEMBER:
		return fmt.Errorf("member %s (%s) answers there: --initial-cluster gives it the wrong URL", ID(a.GetFrom()), a.GetName())
	case peerpb.Refusal_OTHER_PARTITIONS:
		return fmt.Errorf("it was started with --partitions=%d and this member with --partitions=%d: new members need the same number",
			a.GetPartitions(), r.self.Partitions)
	case peerpb.Refusal_OTHER_CLUSTER:
		err := fmt.Errorf("%s", r.otherCluster(a))
		if a.GetAdmitted() {
			return &never{fmt.Sprintf("%s is of another cluster: %v%s", by, err, r.asExisting(a))}
		}
		return err
	}
	return fmt.Errorf("it refuses for a reason that this version doesn't know (%d)", a.GetRefusal())
}

// asExisting says what a member lacks that was added to a cluster and started as a new one.
func (r *Registry) asExisting(a *peerpb.Introduction) string {
	if r.self.Existing || r.rec.State != 0 || a.GetInitialCluster() == r.self.InitialCluster {
		return ""
	}
	return ". A member that was added to that one has to be started with --initial-cluster-state=existing"
}

// otherCluster names the flag that differs.
func (r *Registry) otherCluster(a *peerpb.Introduction) string {
	sameFlags := a.GetInitialCluster() == r.self.InitialCluster && a.GetInitialClusterToken() == r.self.Token
	switch {
	case r.rec.State != 0 || sameFlags:
		return fmt.Sprintf("its cluster is %s and this member's is %s: one was restored from a snapshot, and the other was not, or differently. "+
			"Restore all members from the same file, with the same --initial-cluster, --initial-cluster-token, --partitions and --bump-revision",
			ID(a.GetCluster()), r.rec.Cluster)
	case a.GetInitialCluster() == "": // started again since it was bootstrapped
		return fmt.Sprintf("its cluster is %s and this member's is %s: --initial-cluster and --initial-cluster-token must be those that it was bootstrapped with, "+
			"and if it was restored from a snapshot, this member must be restored from the same file",
			ID(a.GetCluster()), r.rec.Cluster)
	case a.GetInitialClusterToken() != r.self.Token:
		return fmt.Sprintf("it was started with --initial-cluster-token=%s and this member with --initial-cluster-token=%s",
			a.GetInitialClusterToken(), r.self.Token)
	}
	return fmt.Sprintf("it was started with --initial-cluster=%s and this member with --initial-cluster=%s",
		a.GetInitialCluster(), r.self.InitialCluster)
}

// checkVersion refuses to take part in a cluster whose version this program doesn't know.
func (r *Registry) checkVersion(a *peerpb.Introduction) error {
	if err := version.This.CheckMember(version.Level(a.GetClusterLevel())); err != nil {
		return &never{fmt.Sprintf("stoa %s can't be member %s of the cluster of %s: %v", version.Stoa, r.rec.Member, a.GetName(), err)}
	}
	return nil
}
