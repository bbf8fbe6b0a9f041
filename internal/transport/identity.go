package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/version"
)

// protocol is compared by releases before 0.2 and never changes: the levels that a server
// knows say what it can read and do.
const protocol = 3

// The metadata of a link or a snapshot, in both directions.
const (
	keyProtocol    = "stoa-protocol"
	keyCluster     = "stoa-cluster"
	keyFrom        = "stoa-from"
	keyTo          = "stoa-to"
	keyIncarnation = "stoa-incarnation"
	keyPartitions  = "stoa-partitions"
	keyData        = "stoa-data"
	keyStarts      = "stoa-starts"
	keyURLs        = "stoa-urls"   // any number
	keyOldest      = "stoa-oldest" // level, from release 0.2 on
	keyNewest      = "stoa-newest"
)

// identity is the claimed identity of one side of a link.
type identity struct {
	protocol, cluster, from, to, incarnation, partitions, data, starts uint64
	// levels are those that the server's program knows.
	levels version.Known
}

// Mark identifies a server's data directory: the directory's random ID, and how
// often a server has been started on it.
type Mark struct{ Data, Starts uint64 }

func (t *Transport) identity(to uint64) metadata.MD {
	hex := func(v uint64) string { return strconv.FormatUint(v, 16) }
	md := metadata.Pairs(
		keyProtocol, hex(protocol),
		keyCluster, hex(t.o.ClusterID),
		keyFrom, hex(t.o.ID),
		keyTo, hex(to),
		keyIncarnation, hex(t.incarnation),
		keyPartitions, hex(uint64(t.o.Partitions)),
		keyData, hex(t.o.Mark.Data),
		keyStarts, hex(t.o.Mark.Starts),
		keyOldest, hex(uint64(t.o.Known.Oldest)),
		keyNewest, hex(uint64(t.o.Known.Newest)),
	)
	if t.o.URLs != nil {
		md.Append(keyURLs, t.o.URLs()...)
	}
	return md
}

func parseIdentity(md metadata.MD) (id identity, err error) {
	for key, field := range map[string]*uint64{
		keyProtocol: &id.protocol, keyCluster: &id.cluster, keyFrom: &id.from, keyTo: &id.to, keyIncarnation: &id.incarnation, keyPartitions: &id.partitions,
		keyData: &id.data, keyStarts: &id.starts,
	} {
		values := md.Get(key)
		if len(values) != 1 {
			return identity{}, fmt.Errorf("%d values of %s, want one", len(values), key)
		}
		v, err := strconv.ParseUint(values[0], 16, 64)
		if err != nil {
			return identity{}, fmt.Errorf("parse %s: %w", key, err)
		}
		*field = v
	}
	id.levels, err = parseLevels(md)
	return id, err
}

func parseLevels(md metadata.MD) (version.Known, error) {
	oldest, newest := md.Get(keyOldest), md.Get(keyNewest)
	if len(oldest) == 0 && len(newest) == 0 {
		return version.First, nil
	}
	if len(oldest) != 1 || len(newest) != 1 {
		return version.Known{}, fmt.Errorf("%d values of %s and %d of %s, want one of each", len(oldest), keyOldest, len(newest), keyNewest)
	}
	from, err := strconv.ParseUint(oldest[0], 16, 64)
	if err != nil {
		return version.Known{}, fmt.Errorf("parse %s: %w", keyOldest, err)
	}
	to, err := strconv.ParseUint(newest[0], 16, 64)
	if err != nil {
		return version.Known{}, fmt.Errorf("parse %s: %w", keyNewest, err)
	}
	return version.Known{Oldest: version.Level(from), Newest: version.Level(to)}, nil
}

// check returns the reason for which a server is refused by this one. The texts
// reach the logs of both sides.
func (t *Transport) check(who identity) error {
	switch {
	case who.protocol != protocol:
		return fmt.Errorf("server %x speaks peer protocol %d, server %x speaks %d", who.from, who.protocol, t.o.ID, protocol)
	case who.cluster != t.o.ClusterID:
		return fmt.Errorf("server %x belongs to cluster %x, server %x belongs to cluster %x: two clusters use one peer URL", who.from, who.cluster, t.o.ID, t.o.ClusterID)
	case who.from == t.o.ID:
		return fmt.Errorf("two servers have the id %x: the one that dials and the one that is dialled", t.o.ID)
	case who.to != t.o.ID:
		return fmt.Errorf("server %x was looking for server %x at this address and found server %x", who.from, who.to, t.o.ID)
	}
	if err := who.levels.CheckMember(t.o.Level()); err != nil {
		return fmt.Errorf("server %x can't be a member: %w", who.from, err)
	}
	return nil
}

// admit decides whether an incoming call is accepted.
func (t *Transport) admit(ctx context.Context) (*remote, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	who, err := parseIdentity(md)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "this is no link of a stoa server: %v", err)
	}
	if err := t.check(who); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err := t.acquaint(ctx, who, md.Get(keyURLs)); err != nil {
		return nil, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.started || t.closed {
		return nil, status.Errorf(codes.Unavailable, "server %x is starting or stopping", t.o.ID)
	}
	p := t.peers[who.from]
	if p == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "server %x is not a member of cluster %x that server %x knows of", who.from, t.o.ClusterID, t.o.ID)
	}
	// Under the lock, so that Close, which sets closed under it, waits for all
	// calls admitted before.
	t.running.Add(1)
	return &remote{peer: p, who: who, incarnation: who.incarnation, from: addressOf(ctx)}, nil
}

// acquaint makes a peer of a server that dials and is not known: it may be a new member
// that this server, which is behind, has not heard of, and that may be its leader.
func (t *Transport) acquaint(ctx context.Context, who identity, urls []string) error {
	t.mu.RLock()
	known, up := t.peers[who.from] != nil, t.started && !t.closed
	t.mu.RUnlock()
	switch {
	case known || !up:
		return nil
	case t.o.IsRemoved != nil && t.o.IsRemoved(who.from):
		return status.Errorf(codes.NotFound, "server %x was removed from cluster %x", who.from, t.o.ClusterID)
	case len(urls) == 0:
		return nil // admit refuses it
	}
	if err := t.met(ctx, who); err != nil {
		return refusal(err)
	}
	if err := t.UpdatePeer(who.from, urls); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	t.o.Logger.Info("added a peer that isn't in the list of members yet", zap.String("remote-peer-id", strconv.FormatUint(who.from, 16)),
		zap.Strings("remote-peer-urls", urls))
	return nil
}

// met passes the other side's data directory to the owner of this transport. It
// comes last: a server that is refused for another reason, such as a copy of a
// running one, is not recorded. That may last as long as the disk hangs: who has left meanwhile, and dials again, is not waited for.
func (t *Transport) met(ctx context.Context, who identity) error {
	if t.o.Meet == nil || who.data == 0 {
		return nil
	}
	ended, err := alone(ctx, t.meeting)
	if err != nil {
		return err
	}
	defer ended()
	return t.o.Meet(who.from, Mark{who.data, who.starts}, who.incarnation)
}

// alone waits until nobody else has what one may have at a time.
func alone(ctx context.Context, held chan struct{}) (ended func(), err error) {
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, errLeft
	}
}

// errLeft is about a peer that has left before this server could write down that it had come.
var errLeft = status.Error(codes.Unavailable, "the server is still writing down that another has come")

// Outdated is why a server must not take part with its data: it is not what it was. The server is told, and ends.
type Outdated string

func (o Outdated) Error() string { return string(o) }

// refusal is what a peer is told that was not met. Its data is not to blame if this server could not write down that it has
// come: a peer that ended for a full disk of this one would be another member lost.
func refusal(err error) error {
	if outdated := Outdated(""); errors.As(err, &outdated) {
		return status.Error(codes.DataLoss, outdated.Error())
	}
	if errors.Is(err, errLeft) {
		return errLeft
	}
	return status.Error(codes.Internal, err.Error())
}

func addressOf(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "an unknown address"
}
