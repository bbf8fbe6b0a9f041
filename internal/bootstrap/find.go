package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Cluster is a cluster as one of its members shows it.
type Cluster struct {
	ID      ID
	Members []Member
}

func (c Cluster) String() string {
	var members []string
	for _, m := range c.Members {
		members = append(members, fmt.Sprintf("{ID:%s Name:%s PeerURLs:%v}", m.ID, m.Name, m.PeerURLs))
	}
	return fmt.Sprintf("{ClusterID:%s Members:[%s]}", c.ID, strings.Join(members, " "))
}

// Look asks the server of an initial member for its list of members. An error, or an empty
// list, means that the server isn't part of a cluster yet.
type Look func(ctx context.Context, at Member) (Cluster, error)

// Same reports whether two lists of peer URLs name the same addresses.
type Same func(ctx context.Context, a, b []string) bool

// Find returns this server as it is in the cluster that exists: the list of members that
// another one shows has the IDs, and the settings have the name and the peer URLs by which
// this server is found in it. As long as no member shows a list, Find waits. Meanwhile this
// server introduces itself as an initial member, since others may need it to begin.
func (r *Registry) Find(ctx context.Context, self Self, look Look, same Same, ask Ask) (Self, error) {
	if len(self.Members) < 2 {
		return self, errors.New("cannot fetch cluster info from peer urls: --initial-cluster has no other member, though --initial-cluster-state is existing")
	}
	wait := waiting{r: r, began: time.Now()}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		found, ok, err := self.find(ctx, look, same)
		if ok || err != nil {
			return found, err
		}
		if pause == firstPause {
			if err := r.Begin(self); err != nil {
				return self, err
			}
		}
		// A final refusal isn't: it concerns the ID that the settings give, and the list
		// may have another.
		missing, _ := r.askAll(ctx, ask)
		if err := wait.pause(ctx, pause, missing); err != nil {
			return self, err
		}
	}
}

// find asks all other members. A member that is behind may show an earlier list, so that of
// any will do; but if there are lists, and none has this server, that is an error. A list from before this server's URLs
// were given to a new member has them with the ID of the one that was removed: if lists differ in
// that, the one that is behind has to catch up.
func (s Self) find(ctx context.Context, look Look, same Same) (found Self, ok bool, err error) {
	for _, m := range s.Members {
		if m.ID == s.Member {
			continue
		}
		c, e := look(ctx, m)
		if e != nil || len(c.Members) == 0 {
			continue
		}
		in, e := s.in(ctx, c, same)
		switch {
		case e != nil:
			err = fmt.Errorf("error validating peerURLs %s: %w", c, e)
		case ok && in.Member != found.Member:
			return s, false, nil
		default:
			found, ok = in, true
		}
	}
	if ok {
		return found, true, nil
	}
	return s, false, err
}

// in is this server with the IDs of a list of members. The list must have the same members
// as the settings, as in etcd (api/membership, ValidateClusterAndAssignIDs).
func (s Self) in(ctx context.Context, c Cluster, same Same) (Self, error) {
	if len(c.Members) != len(s.Members) {
		return s, errors.New("member count is unequal")
	}
	found := s
	found.Cluster, found.Member, found.Members = c.ID, 0, nil
	for _, existing := range c.Members {
		var local *Member
		for i := range s.Members {
			if same(ctx, existing.PeerURLs, s.Members[i].PeerURLs) {
				local = &s.Members[i]
				break
			}
		}
		if local == nil {
			return s, fmt.Errorf("PeerURLs: no match found for existing member (%s, %v)", existing.ID, existing.PeerURLs)
		}
		if local.ID == s.Member {
			found.Member = existing.ID
		}
		found.Members = append(found.Members, Member{ID: existing.ID, Name: local.Name, PeerURLs: existing.PeerURLs})
	}
	if found.Member == 0 {
		return s, fmt.Errorf("couldn't find local name %q in the list of members", s.Name)
	}
	return found, nil
}
