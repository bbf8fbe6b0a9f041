package namespace

import "google.golang.org/protobuf/reflect/protoreflect"

// role is how a field is translated.
type role byte

const (
	// other fields are no keys.
	other role = iota
	// key is a key. An empty one stays empty: a member refuses it.
	key
	// end is the end of a range: empty for a single key, "\x00" for the end of all keys.
	end
	// watched is a key of which an empty one is the first of all, "\x00".
	watched
	// name begins keys; an empty one is a name, too.
	name
	// owned is a key that may be outside of the namespace, and is left out then.
	owned
)

// roles are the fields with keys, of all messages that are translated.
var roles = map[protoreflect.FullName]role{
	"mvccpb.KeyValue.key": key,

	"etcdserverpb.RangeRequest.key":             key,
	"etcdserverpb.RangeRequest.range_end":       end,
	"etcdserverpb.PutRequest.key":               key,
	"etcdserverpb.DeleteRangeRequest.key":       key,
	"etcdserverpb.DeleteRangeRequest.range_end": end,
	"etcdserverpb.Compare.key":                  key,
	"etcdserverpb.Compare.range_end":            end,
	"etcdserverpb.WatchCreateRequest.key":       watched,
	"etcdserverpb.WatchCreateRequest.range_end": end,
	"etcdserverpb.LeaseTimeToLiveResponse.keys": owned,

	"v3lockpb.LockRequest.name":  name,
	"v3lockpb.LockResponse.key":  key,
	"v3lockpb.UnlockRequest.key": key,

	"v3electionpb.CampaignRequest.name": name,
	"v3electionpb.LeaderRequest.name":   name,
	"v3electionpb.LeaderKey.name":       name,
	"v3electionpb.LeaderKey.key":        key,
}
