package membership

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// VersionOp is the type of a change of the cluster's version.
type VersionOp uint8

// The changes of the cluster's version. Their numbers are part of the log's format.
const (
	Raise     VersionOp = iota + 1 // all members know a later level
	Downgrade                      // to the level before, and hold it there
	Cancel                         // a downgrade: the level may rise again
)

// VersionChange is a change of the cluster's version.
type VersionChange struct {
	Op VersionOp
	// From is the level that a Raise was decided at: at another one it has no effect.
	// To is the level to reach, 0 with Cancel.
	From, To version.Level
}

// Needs is the lowest level that a program must know to carry out the change. Those that
// don't know the change at all pass over the ones that need the first level, which is right:
// at that level a cluster has no other version to note.
func (c *VersionChange) Needs() version.Level { return max(c.To, 1) }

// Needs is the lowest level that a program must know to carry out the change.
func (c *Change) Needs() version.Level {
	if c.Op == Reset {
		return 2
	}
	return 1
}

// NextVersion is the list after a change of the version. The member with the later level
// decides nothing here: whether all members know a level is up to the leader, before it
// proposes the change, as in etcd (server/etcdserver/version, Monitor).
func (l *List) NextVersion(c VersionChange) (*List, error) {
	next := l.copy()
	switch c.Op {
	case Raise:
		if c.From != l.Level || c.To <= l.Level {
			return l, nil // another one was faster
		}
		next.Level, next.Downgrading = c.To, false
	case Downgrade:
		if err := l.MayDowngrade(c.To); err != nil {
			return nil, err
		}
		next.Level, next.Downgrading = c.To, true
		if c.To < levelOfReleases {
			next.Releases = nil
		}
	case Cancel:
		if !l.Downgrading {
			return nil, fault.NoDowngrade
		}
		next.Downgrading = false
	}
	return next, nil
}

// DueVersion is the change of the version that should be proposed, a Raise by the leader, by
// what the programs of all members know. A downgrade is over once a member runs a release that knows nothing
// later: from then on that member holds the version down, as long as it is needed.
func (l *List) DueVersion(members []version.Known) (c VersionChange, needed bool) {
	can, ok := version.Lowest(members)
	switch {
	case l.Downgrading:
		return VersionChange{Op: Cancel}, can <= l.Level
	case !ok || can <= l.Level:
		return c, false
	}
	return VersionChange{Op: Raise, From: l.Level, To: can}, true
}

// MayDowngrade returns etcd's reason for which the version can't go down to a level: only the
// one before is possible.
func (l *List) MayDowngrade(to version.Level) error {
	switch {
	case l.Downgrading:
		return fault.DowngradeInProcess
	case to != l.Level-1 || to < version.Oldest:
		return fault.BadDowngradeTarget
	}
	return nil
}

// levelOfReleases is the level from which on members announce their releases.
const levelOfReleases version.Level = 2

// AnnouncesReleases reports whether members announce their releases ([Announcement]).
func (l *List) AnnouncesReleases() bool { return l.Level >= levelOfReleases }

// Announcement is what a member says of itself once it runs.
type Announcement struct {
	Member  *pb.Member // its ID, name and client URLs
	Release string     // of stoa
}

// Announce is Publish with the release.
func (l *List) Announce(a Announcement) (*List, error) {
	if !l.AnnouncesReleases() {
		return nil, fault.VersionTooLow // the version went down after the member had looked
	}
	next, err := l.Publish(a.Member.GetID(), a.Member.GetName(), a.Member.GetClientURLs())
	if err != nil {
		return nil, err
	}
	if next.Releases == nil {
		next.Releases = map[uint64]string{}
	}
	next.Releases[a.Member.GetID()] = a.Release
	return next, nil
}

// The encoded change of the version:
//
//	version (1 byte) | op (1 byte) | from | to, unsigned varints
//
// The encoded announcement:
//
//	version (1 byte) | 1 (1 byte) | length and text of the release | Member, marshalled

// Encode returns the encoded change.
func (c *VersionChange) Encode() []byte {
	b := []byte{encoding, byte(c.Op)}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.From)), uint64(c.To))
}

// DecodeVersion reads an encoded change of the version.
func DecodeVersion(b []byte) (c VersionChange, err error) {
	if b, err = head(b, byte(Cancel)); err != nil {
		return c, fmt.Errorf("decode change of the cluster's version: %w", err)
	}
	c.Op, b = VersionOp(b[0]), b[1:]
	for _, v := range []*version.Level{&c.From, &c.To} {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return c, fmt.Errorf("decode change of the cluster's version: %w", errShort)
		}
		*v, b = version.Level(x), b[n:]
	}
	if len(b) > 0 {
		return c, fmt.Errorf("decode change of the cluster's version: %d bytes behind it", len(b))
	}
	return c, nil
}

// Encode returns the encoded announcement.
func (a *Announcement) Encode() ([]byte, error) {
	b := binary.AppendUvarint([]byte{encoding, 1}, uint64(len(a.Release)))
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(append(b, a.Release...), a.Member)
}

var errNoMember = errors.New("it names no member")

// DecodeAnnouncement reads an encoded announcement.
func DecodeAnnouncement(b []byte) (a Announcement, err error) {
	if b, err = head(b, 1); err != nil {
		return a, fmt.Errorf("decode announcement of a member: %w", err)
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > uint64(len(b)-1-n) {
		return a, fmt.Errorf("decode announcement of a member: %w", errShort)
	}
	b = b[1+n:]
	a = Announcement{Release: string(b[:size]), Member: new(pb.Member)}
	err = proto.Unmarshal(b[size:], a.Member)
	if err == nil && a.Member.GetID() == 0 {
		err = errNoMember
	}
	if err != nil {
		return a, fmt.Errorf("decode announcement of a member: %w", err)
	}
	return a, nil
}
