package rpc

import (
	"context"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

// The services' interface of the server. Every method may be called from any
// number of goroutines at once. Errors carry a [fault.Fault] somewhere inside,
// or are the context's own; toStatus turns them into etcd's codes and texts.
//
// Answers carry a header with the revision only; the services fill in cluster,
// member and term. A method owns its request: the services don't use it
// afterwards, and each call gets a request of its own.

// KV serves reads and writes of keys.
type KV interface {
	// Range answers linearizably unless the request says serializable. The
	// header's revision is the one at which the answer is exact, also for a
	// request that names an older revision.
	Range(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error)
	// RangeOn reads on in a range that a request has asked for.
	RangeOn(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error)
	// Fences is how often the state of this server was found to be wrong. It answers again with another: what was begun
	// with one must not be finished if the number has changed.
	Fences() uint64
	// Put, DeleteRange, Txn and Compact return when the write is durable on a
	// majority and applied here.
	Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error)
	DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error)
	Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error)
	Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error)
	// Write is Put, DeleteRange or Txn, by the type of the request, for callers that don't wait: it
	// calls done, once and without blocking, with what those return. That may be on any goroutine,
	// under locks, and before Write returns.
	Write(ctx context.Context, r proto.Message, done func(resp Answer, err error))
}

// Answer is the answer to a write.
type Answer = interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// Lessor serves leases.
type Lessor interface {
	LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error)
	LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error)
	// LeaseShorten gives a lease less than its full time, in seconds.
	LeaseShorten(ctx context.Context, id, remaining int64) error
	// LeaseRenew returns the renewed TTL in seconds, or fault.LeaseNotFound.
	LeaseRenew(ctx context.Context, id int64) (ttl int64, err error)
	// LeaseTimeToLive answers for a lease that isn't there with a TTL of -1, or
	// fault.LeaseNotFound.
	LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error)
	// LeaseLeases lists the leases that were granted and, if asked to, those of sessions.
	LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest, sessions bool) (*pb.LeaseLeasesResponse, error)
}

// Watcher hands out streams of the watch hub.
type Watcher interface {
	NewWatchStream(ctx context.Context) *watch.Stream
	// OpenWatch is called with every request for a watch before it is carried out:
	// an extension may change what is watched and give the first event. user is for whom
	// the watch is to be created.
	OpenWatch(ctx context.Context, r *pb.WatchCreateRequest) (first *mvccpb.Event, user uint64, err error)
}

// Auth serves users and roles.
type Auth interface {
	// AuthChange carries out one of the requests that change users, roles or permissions,
	// or whether they are enforced. The response has the state after it.
	AuthChange(ctx context.Context, r *pb.InternalRaftRequest) (*pb.AuthStatusResponse, error)
	AuthStatus(ctx context.Context) (*pb.AuthStatusResponse, error)
	// Authenticate takes the password out of the request.
	Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error)
	UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error)
	UserList(ctx context.Context) (*pb.AuthUserListResponse, error)
	RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error)
	RoleList(ctx context.Context) (*pb.AuthRoleListResponse, error)
	// User is the name of the user whom a client has proved to be, "" for none: for the
	// audit log. Requests are not decided by it.
	User(ctx context.Context) string
	// Permit refuses, while permissions are enforced, clients who are no users, or, if root
	// is asked for, don't have that role.
	Permit(ctx context.Context, root bool) error
}

// Maintenance serves the operator.
type Maintenance interface {
	// Status is the status of this server and its file; the active alarms are
	// in Errors. The service adds the versions, the term, and that there is no
	// leader.
	Status(ctx context.Context) (*pb.StatusResponse, error)
	// Hash is etcd's checksum over the whole file, exact at revision rev.
	Hash(ctx context.Context) (hash uint32, rev int64, err error)
	// HashKV is etcd's checksum over the history up to rev (0: all of it).
	HashKV(ctx context.Context, rev int64) (*pb.HashKVResponse, error)
	Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error)
	Defragment(ctx context.Context) error
	// Snapshot opens a consistent copy of the file; the caller closes it. It yields
	// exactly size bytes; version is etcd's storage version.
	Snapshot(ctx context.Context) (content io.ReadCloser, size int64, version string, err error)
	// MoveLeader hands the leadership of all groups to another member; it is
	// called on the leader only.
	MoveLeader(ctx context.Context, to uint64) error
	// ClusterVersion is the version of the cluster, as a release of stoa, and whether a
	// downgrade to it is under way.
	ClusterVersion() (v version.Level, downgrading bool)
	// Downgrade begins, cancels or validates a downgrade.
	Downgrade(ctx context.Context, action pb.DowngradeRequest_DowngradeAction, target version.Level) error
}

// Cluster lists and changes the members. Changes return once all of the cluster has
// followed them, with fault.MemberNotFound and the like.
type Cluster interface {
	// Members returns the members; linearizable asks for a list that is no
	// older than the call.
	Members(ctx context.Context, linearizable bool) ([]*pb.Member, error)
	MemberAdd(ctx context.Context, peerURLs []string, learner bool) (added *pb.Member, members []*pb.Member, err error)
	MemberRemove(ctx context.Context, id uint64) ([]*pb.Member, error)
	MemberUpdate(ctx context.Context, id uint64, peerURLs []string) ([]*pb.Member, error)
	MemberPromote(ctx context.Context, id uint64) ([]*pb.Member, error)
}

// Info has the fields of headers and leader checks. The methods are called on
// every request: they must be no more than an atomic load.
type Info interface {
	ClusterID() uint64
	MemberID() uint64
	RaftTerm() uint64
	// Leader is the leader's id, 0 if this server knows of none.
	Leader() uint64
	// Revision is the highest revision that this server has applied. It goes
	// into headers of answers that have none of their own.
	Revision() int64
	// IsLearner reports whether this server is a member without a vote, which serves
	// little.
	IsLearner() bool
	// Fenced reports whether this server serves nothing, since its state differs from that of
	// a majority.
	Fenced() bool
}

// Node is all of it: one server, seen from the network.
type Node interface {
	KV
	Lessor
	Watcher
	Maintenance
	Cluster
	Auth
	Info
}
