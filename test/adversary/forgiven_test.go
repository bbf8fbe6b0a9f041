package adversary

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// forgiven are fields of answers that may differ between the twins, since etcd tells every
// user as much, or since they are drawn for the client itself.
type forgiven map[protoreflect.FullName]bool

// always are those of every answer, beside etcd's header.
var always = forgiven{
	// Of servers, in lists of members and in the status, which every user gets.
	"etcdserverpb.Member.ID": true, "etcdserverpb.Member.peerURLs": true, "etcdserverpb.Member.clientURLs": true,
	"etcdserverpb.StatusResponse.dbSize": true, "etcdserverpb.StatusResponse.dbSizeInUse": true, "etcdserverpb.StatusResponse.leader": true,
	"etcdserverpb.StatusResponse.raftIndex": true, "etcdserverpb.StatusResponse.raftAppliedIndex": true, "etcdserverpb.StatusResponse.raftTerm": true,
	// Time goes on.
	"etcdserverpb.LeaseTimeToLiveResponse.TTL": true, "etcdserverpb.LeaseKeepAliveResponse.TTL": true,
	// Drawn: tokens, leases and sessions of the client's own.
	"etcdserverpb.AuthenticateResponse.token": true, "etcdserverpb.LeaseGrantResponse.ID": true, "stoa.v1.Opened.session": true,
	// As in etcd's header.
	"stoa.v1.Opened.cluster_id": true, "stoa.v1.Opened.member_id": true, "stoa.v1.Opened.raft_term": true, "stoa.v1.Opened.revision": true,
	"stoa.v1.Reply.revision": true,
	// Leases of other streams of the adversary, which come and go.
	"etcdserverpb.LeaseLeasesResponse.leases": true,
}

const headerType protoreflect.FullName = "etcdserverpb.ResponseHeader"

// forgive clears the fields, at any depth.
func forgive(m protoreflect.Message, f forgiven) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f[d.FullName()] || d.Message() != nil && d.Message().FullName() == headerType:
			m.Clear(d)
		case d.IsMap() || d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				forgive(v.List().Get(i).Message(), f)
			}
		default:
			forgive(v.Message(), f)
		}
		return true
	})
}
