package fault

import "errors"

// Fault is one way to fail. Compare with errors.Is; two faults are the same
// fault if they are the same pointer.
type Fault struct {
	code uint32
	text string
}

func (f *Fault) Error() string { return f.text }

// Code is the number under which the fault travels between servers. Codes are
// part of the peer protocol: append, never renumber.
func (f *Fault) Code() uint32 { return f.code }

var byCode = map[uint32]*Fault{}

func declare(code uint32, text string) *Fault {
	f := &Fault{code: code, text: text}
	if byCode[code] != nil {
		panic("fault: code declared twice")
	}
	byCode[code] = f
	return f
}

// The faults of requests. The texts are for logs; clients see etcd's.
var (
	EmptyKey          = declare(1, "key is not provided")
	KeyNotFound       = declare(2, "key not found")
	ValueProvided     = declare(3, "value is provided though ignore_value is set")
	LeaseProvided     = declare(4, "lease is provided though ignore_lease is set")
	TooManyOps        = declare(5, "too many operations in txn request")
	DuplicateKey      = declare(6, "duplicate key given in txn request")
	InvalidSort       = declare(7, "invalid sort option")
	Compacted         = declare(8, "required revision has been compacted")
	FutureRevision    = declare(9, "required revision is a future revision")
	NoSpace           = declare(10, "database space exceeded")
	LeaseNotFound     = declare(11, "requested lease not found")
	LeaseExists       = declare(12, "lease already exists")
	LeaseTTLTooLarge  = declare(13, "too large lease TTL")
	TooManyRequests   = declare(14, "too many requests")
	RequestTooLarge   = declare(15, "request is too large")
	NoLeader          = declare(16, "no leader")
	NotLeader         = declare(17, "not leader")
	LeaderChanged     = declare(18, "leader changed")
	Timeout           = declare(19, "request timed out")
	TimeoutLeaderFail = declare(20, "request timed out, possibly due to previous leader failure")
	TimeoutConnLost   = declare(21, "request timed out, possibly due to connection lost")
	Stopped           = declare(22, "server stopped")
	Corrupt           = declare(23, "corrupt cluster")
	MemberNotFound    = declare(24, "member not found")
	BadLeaderTransfer = declare(25, "bad leader transferee")
	Unhealthy         = declare(26, "unhealthy cluster")
	Internal          = declare(27, "internal error")
	// Moved: the keys or the extensions that the request was routed by have changed
	// since. The request had no effect, and the server routes it again; no client
	// sees this.
	Moved = declare(28, "key has moved to another partition")

	// Of extensions. Clients see the text that comes with them ([Fault.With]).
	BadExtension      = declare(29, "extension refused")          // its source or its name
	ExtensionFailed   = declare(30, "extension failed")           // an error that it raised
	ExtensionLimit    = declare(31, "extension exceeded a limit") // and was stopped
	ExtensionDisabled = declare(32, "extension is disabled")
	NoExtension       = declare(33, "no such extension")
	Uncertain         = declare(34, "whether an extension ran is unknown")

	// Of sessions.
	// SessionGone: the session's lease has ended, or is none that was granted for a
	// session. The request had no effect.
	SessionGone = declare(35, "session has ended")
	// SessionGap: the write before this one has not taken effect, so this one must
	// not. Nothing has happened; no client sees this.
	SessionGap = declare(36, "write before this one in its session is missing")
	// ResultForgotten: the write took effect when it was sent before, once, and its
	// result is not known any more.
	ResultForgotten = declare(37, "result of a write that was sent before is forgotten")
	// SessionTaken: the client has come back on another stream.
	SessionTaken = declare(38, "session goes on on another stream")
	// ReadOvertaken: the read was sent before, and later writes of its session have
	// taken effect since. It can't be evaluated at its place in the session's order.
	ReadOvertaken = declare(39, "read was sent again after later writes of its session took effect")
	// TooManySessions: no more can be opened.
	TooManySessions = declare(40, "too many sessions")

	// TooMuchWork: event handlers would have too much to do for the request. Nothing of
	// it has taken effect.
	TooMuchWork = declare(41, "event handlers would have too much work with the request")
	// Unacknowledged: a strict extension concerns the key, and the client hasn't
	// acknowledged it.
	Unacknowledged = declare(42, "extension is not acknowledged")
	// LeaseEnding: some of the lease's keys are gone, and it can't be used any more; it
	// has to be revoked again. Servers do so, no client sees this.
	LeaseEnding = declare(43, "lease ends in several steps")
	// TooManyProfiles: no more extensions can be profiled on this server, or this one is.
	TooManyProfiles = declare(44, "too many profiles")

	// Of changes of members.
	MemberExists     = declare(45, "member ID already exists")
	PeerURLExists    = declare(46, "peer URLs already exist")
	BadPeerURLs      = declare(47, "given member URLs are invalid")
	MemberNotLearner = declare(48, "can only promote a learner member")
	LearnerNotReady  = declare(49, "can only promote a learner member which is in sync with leader")
	TooManyLearners  = declare(50, "too many learner members in cluster")
	NotEnoughStarted = declare(51, "re-configuration failed due to not enough started members")
	// Reconfiguring: the groups have not followed the last change yet. The change has
	// had no effect, and servers try again.
	Reconfiguring = declare(52, "another change of members is under way")
	// Learner: the member serves no such requests.
	Learner = declare(53, "rpc not supported for learner")

	// Of the cluster's version.
	BadDowngradeTarget = declare(54, "invalid downgrade target version")
	DowngradeInProcess = declare(55, "cluster has a downgrade job in progress")
	NoDowngrade        = declare(56, "no inflight downgrade job")
	// VersionTooLow: the command needs a later version of the cluster. It had no effect, and
	// servers do without it.
	VersionTooLow = declare(57, "the cluster's version is too low for this: upgrade all members")

	// Of users and roles.
	RootUserNotExist     = declare(70, "root user does not exist")
	RootRoleNotExist     = declare(71, "root user does not have root role")
	UserExists           = declare(72, "user name already exists")
	UserEmpty            = declare(73, "user name is empty")
	UserNotFound         = declare(74, "user name not found")
	RoleExists           = declare(75, "role name already exists")
	RoleNotFound         = declare(76, "role name not found")
	RoleEmpty            = declare(77, "role name is empty")
	AuthFailed           = declare(78, "authentication failed, invalid user ID or password")
	PermissionNotGiven   = declare(79, "permission not given")
	PermissionDenied     = declare(80, "permission denied")
	RoleNotGranted       = declare(81, "role is not granted to the user")
	PermissionNotGranted = declare(82, "permission is not granted to the role")
	AuthNotEnabled       = declare(83, "authentication is not enabled")
	InvalidAuthToken     = declare(84, "invalid auth token")
	InvalidAuthMgmt      = declare(85, "invalid auth management")
	// AuthOldRevision: the request's user was deleted, or its password changed, since the
	// user authenticated. Clients authenticate again.
	AuthOldRevision = declare(86, "revision of auth store is old")
	NoPasswordUser  = declare(87, "auth: authentication failed, password was given for no password user")
	// ForeignClient: the ID by which extensions are to know the client isn't its user's.
	ForeignClient = declare(88, "client ID is another user's")

	// Of quotas. Clients see the text that comes with them.
	QuotaExceeded = declare(89, "quota exceeded")
	BadQuota      = declare(90, "no such quota, or an invalid one")

	// Of where keys are. Clients see the text that comes with BadPlacement.
	BadPlacement = declare(91, "keys can't be placed like that")
	// Moving: keys are on their way between partitions. The request has had no effect, and
	// servers try again.
	Moving = declare(92, "keys are being moved between partitions")

	// Fenced: this member differs from a majority of the others, or its memory from its file, and
	// it answers nothing before it has the state of another and the next check agrees. Whether a
	// write took effect is unknown.
	Fenced = declare(93, "this member's state is damaged or differs from that of the majority, and it serves nothing until it has taken in another's: use another member")
)

// Detail is a fault with a text of its own, which reaches the client.
type Detail struct {
	Fault *Fault
	Text  string
}

// With returns the fault with a text that says more, made [Readable].
func (f *Fault) With(text string) *Detail { return &Detail{f, Readable(text)} }

func (d *Detail) Error() string { return d.Text }
func (d *Detail) Unwrap() error { return d.Fault }

// TextOf returns the text that came with the fault inside err, if one did.
func TextOf(err error) string {
	var d *Detail
	if errors.As(err, &d) {
		return d.Text
	}
	return ""
}

// Passing says whether an error is about leadership, which may be another's a moment
// later.
func Passing(err error) bool {
	for _, f := range [...]*Fault{LeaderChanged, NotLeader, TimeoutLeaderFail, TimeoutConnLost} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// FromCode returns the fault with a number that another server sent, or
// Internal for a number that this version doesn't know.
func FromCode(code uint32) *Fault {
	if f := byCode[code]; f != nil {
		return f
	}
	return Internal
}

// CodeOf returns the number of the fault inside err, that of Internal if there
// is none, and 0 for nil.
func CodeOf(err error) uint32 {
	if err == nil {
		return 0
	}
	var f *Fault
	if errors.As(err, &f) {
		return f.code
	}
	return Internal.code
}
