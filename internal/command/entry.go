package command

import (
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// Kind is the type of a command.
type Kind uint8

// The kinds of commands. The body of each is the marshalled message named here,
// from etcd's etcdserverpb.
const (
	Put             Kind = iota + 1 // PutRequest
	DeleteRange                     // DeleteRangeRequest
	Txn                             // TxnRequest
	Compact                         // CompactionRequest
	LeaseGrant                      // LeaseGrantRequest, with its ID chosen
	LeaseRevoke                     // LeaseRevokeRequest
	LeaseCheckpoint                 // LeaseCheckpointRequest
	Alarm                           // AlarmRequest
	MemberPublish                   // Member, with the client URLs to announce
	Extended                        // a Call
	Range                           // RangeRequest; only inside a Call
	Watch                           // WatchCreateRequest; only inside a Call
	InSession                       // a Sequenced
	Move                            // a Step
	SessionOpen                     // LeaseGrantRequest, whose lease is that of a session
	MemberChange                    // a membership.Change
	ClusterVersion                  // a membership.VersionChange
	MemberAnnounce                  // a membership.Announcement; from level 2
	Auth                            // InternalRaftRequest, with one of its requests about users and roles; from level 2
	Quota                           // an auth.QuotaChange; from level 2
	Place                           // a Wish; from level 3
	Resize                          // a number of partitions; from level 4
	Check                           // a version of digests (check.AppendVersion); from level 6
	Verdict                         // a check.Verdict; from level 6

	// Kinds is above all of them.
	Kinds
)

var kindNames = [...]string{
	Put: "put", DeleteRange: "delete-range", Txn: "txn", Compact: "compact",
	LeaseGrant: "lease-grant", LeaseRevoke: "lease-revoke",
	LeaseCheckpoint: "lease-checkpoint", Alarm: "alarm",
	MemberPublish: "member-publish", Extended: "extended", Range: "range", Watch: "watch",
	InSession: "in-session", Move: "move", SessionOpen: "session-open",
	MemberChange: "member-change", ClusterVersion: "cluster-version", MemberAnnounce: "member-announce", Auth: "auth",
	Quota: "quota", Place: "place", Resize: "resize", Check: "check", Verdict: "verdict",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// MayWrite reports whether a command of this kind may change a key, and so
// takes a stamp of its own. A move and its beginning change none, but closed revisions must
// say whether they have been applied: a client that has seen a write after it
// must find the key in its new partition.
func (k Kind) MayWrite() bool {
	switch k {
	case Put, DeleteRange, Txn, LeaseRevoke, Extended, InSession, Move, Place:
		return true
	}
	return false
}

// TakesSpace reports whether commands of the kind are refused while the alarm NOSPACE is active. So are transactions that put.
func (k Kind) TakesSpace() bool { return k == Put || k == LeaseGrant || k == SessionOpen }

// Command is one request as it goes through the log.
type Command struct {
	Kind Kind
	// User is the credential of the user who asks for it (package auth): 0 for none, as
	// while authentication is off.
	User uint64
	Body []byte
}

// Needs is the lowest level that a program must know to execute the command: its entry can't
// be decoded by others. Commands that a cluster's version rules out are not proposed, and
// fail where they are executed.
func (c *Command) Needs() version.Level {
	if c.User != 0 {
		return 2
	}
	switch c.Kind {
	case ClusterVersion:
		if v, err := membership.DecodeVersion(c.Body); err == nil {
			return v.Needs()
		}
	case MemberChange:
		if change, err := membership.Decode(c.Body); err == nil {
			return change.Needs()
		}
	}
	return max(c.Kind.Since(), 1)
}

// since are the levels that brought the kinds.
var since = [Kinds]version.Level{
	Put: 1, DeleteRange: 1, Txn: 1, Compact: 1, LeaseGrant: 1, LeaseRevoke: 1, LeaseCheckpoint: 1, Alarm: 1, MemberPublish: 1,
	Extended: 1, Range: 1, Watch: 1, InSession: 1, Move: 1, SessionOpen: 1, MemberChange: 1,
	ClusterVersion: 1, // see membership.VersionChange.Needs
	MemberAnnounce: 2, Auth: 2, Quota: 2, Place: 3, Resize: 4, Check: 6, Verdict: 6,
}

// Since is the level that brought the kind, 0 if it isn't known. A cluster below it neither
// proposes nor executes such commands.
func (k Kind) Since() version.Level {
	if k >= Kinds {
		return 0
	}
	return since[k]
}

// Resizes tells whether the entry changes the number of partitions: then it is the last that its
// leader stamps.
func (e *Entry) Resizes() bool { return len(e.Commands) == 1 && e.Commands[0].Kind == Resize }

// Checks tells whether the entry compares replicas: alone, at a place of its own.
func (e *Entry) Checks() bool {
	return len(e.Commands) == 1 && (e.Commands[0].Kind == Check || e.Commands[0].Kind == Verdict)
}

// Entry is the content of one log entry.
type Entry struct {
	// Stamp is the first revision reserved for this entry's commands. 0 with a
	// single partition, where revisions follow from the log alone. An entry
	// whose commands take no stamp carries the next one that was still free:
	// everything before it in any log has a lower one.
	Stamp int64
	// Parts are the participants of a rendezvous, 0 for a local entry.
	Parts placement.Set
	// Origin and Seq name the proposal: waiters are found by them. Of replicated
	// state epochs have them, and the numbers of leases are made of them.
	Origin, Seq uint64
	Commands    []Command
}

// Stamps is the number of stamps that the entry takes: one for each command
// that may write.
func (e *Entry) Stamps() int { return e.mayWriteBefore(len(e.Commands)) }

// StampOf is the stamp of command i: 0 if the entry has none.
func (e *Entry) StampOf(i int) int64 {
	if e.Stamp == 0 {
		return 0
	}
	return e.Stamp + int64(e.mayWriteBefore(i))
}

func (e *Entry) mayWriteBefore(i int) int {
	n := 0
	for _, c := range e.Commands[:i] {
		if c.Kind.MayWrite() {
			n++
		}
	}
	return n
}
