package audit

import (
	"fmt"
	"net/url"
	"strconv"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lockpb"
)

// Describe notes what a request is about, field by field: fields that aren't named here
// don't get into the log.
func (r *Record) Describe(req any) {
	switch m := req.(type) {
	case *pb.PutRequest:
		r.add("put", m.GetKey(), nil)
		r.lease(m.GetLease())
	case *pb.DeleteRangeRequest:
		r.add("delete", m.GetKey(), m.GetRangeEnd())
	case *pb.RangeRequest:
		r.add("range", m.GetKey(), m.GetRangeEnd())
	case *pb.WatchCreateRequest:
		r.add("watch", m.GetKey(), m.GetRangeEnd())
	case *pb.TxnRequest:
		r.txn(m)
	case *pb.CompactionRequest:
		r.CompactedAt = m.GetRevision()
	case *pb.LeaseGrantRequest:
		r.lease(m.GetID())
	case *pb.LeaseRevokeRequest:
		r.lease(m.GetID())
	case *pb.LeaseKeepAliveRequest:
		r.lease(m.GetID())
	case *pb.LeaseTimeToLiveRequest:
		r.lease(m.GetID())
	default:
		if !r.queue(req) {
			r.administration(req)
		}
	}
}

// queue describes requests about locks and elections. The name of one is the prefix of its keys;
// the key itself may be known by the answer alone: see [Record.Outcome].
func (r *Record) queue(req any) bool {
	switch m := req.(type) {
	case *lockpb.LockRequest:
		r.add("put", m.GetName(), nil)
		r.lease(m.GetLease())
	case *lockpb.UnlockRequest:
		r.add("delete", m.GetKey(), nil)
	case *lockpb.CampaignRequest:
		r.add("put", m.GetName(), nil)
		r.lease(m.GetLease())
	case *lockpb.ProclaimRequest:
		r.add("put", m.GetLeader().GetKey(), nil)
		r.lease(m.GetLeader().GetLease())
	case *lockpb.ResignRequest:
		r.add("delete", m.GetLeader().GetKey(), nil)
		r.lease(m.GetLeader().GetLease())
	case *lockpb.LeaderRequest:
		r.add("range", m.GetName(), nil)
	default:
		return false
	}
	return true
}

// Outcome notes what a request was about as far as only its answer says so: the server chooses
// IDs of leases, and with them the keys of locks.
func (r *Record) Outcome(resp any) {
	switch m := resp.(type) {
	case *pb.LeaseGrantResponse:
		r.lease(m.GetID())
	case *lockpb.LockResponse:
		r.Keys = nil
		r.add("put", m.GetKey(), nil)
	case *lockpb.CampaignResponse:
		r.Keys = nil
		r.add("put", m.GetLeader().GetKey(), nil)
		r.lease(m.GetLeader().GetLease())
	}
}

// ReadOnly reports whether a transaction has no operation that writes, in any branch.
func ReadOnly(m *pb.TxnRequest) bool {
	for _, ops := range [...][]*pb.RequestOp{m.GetSuccess(), m.GetFailure()} {
		for _, op := range ops {
			if op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil || op.GetRequestTxn() != nil && !ReadOnly(op.GetRequestTxn()) {
				return false
			}
		}
	}
	return true
}

func (r *Record) txn(m *pb.TxnRequest) {
	for _, c := range m.GetCompare() {
		r.add("compare", c.GetKey(), c.GetRangeEnd())
	}
	for _, ops := range [...][]*pb.RequestOp{m.GetSuccess(), m.GetFailure()} {
		for _, op := range ops {
			switch o := op.GetRequest().(type) {
			case *pb.RequestOp_RequestPut:
				r.add("put", o.RequestPut.GetKey(), nil)
			case *pb.RequestOp_RequestDeleteRange:
				r.add("delete", o.RequestDeleteRange.GetKey(), o.RequestDeleteRange.GetRangeEnd())
			case *pb.RequestOp_RequestRange:
				r.add("range", o.RequestRange.GetKey(), o.RequestRange.GetRangeEnd())
			case *pb.RequestOp_RequestTxn:
				r.txn(o.RequestTxn)
			}
		}
	}
}

// administration describes requests about users, roles, members and the cluster.
func (r *Record) administration(req any) {
	switch m := req.(type) {
	case *pb.AuthenticateRequest:
		r.Name = m.GetName()
	case *pb.AuthUserAddRequest:
		r.Name = m.GetName()
	case *pb.AuthUserGetRequest:
		r.Name = m.GetName()
	case *pb.AuthUserDeleteRequest:
		r.Name = m.GetName()
	case *pb.AuthUserChangePasswordRequest:
		r.Name = m.GetName()
	case *pb.AuthUserGrantRoleRequest:
		r.Name, r.Role = m.GetUser(), m.GetRole()
	case *pb.AuthUserRevokeRoleRequest:
		r.Name, r.Role = m.GetName(), m.GetRole()
	case *pb.AuthRoleAddRequest:
		r.Role = m.GetName()
	case *pb.AuthRoleGetRequest:
		r.Role = m.GetRole()
	case *pb.AuthRoleDeleteRequest:
		r.Role = m.GetRole()
	case *pb.AuthRoleGrantPermissionRequest:
		r.Role = m.GetName()
		r.permission(m.GetPerm())
	case *pb.AuthRoleRevokePermissionRequest:
		r.Role = m.GetRole()
		r.add("permission", m.GetKey(), m.GetRangeEnd())
	case *pb.MemberAddRequest:
		r.urls(m.GetPeerURLs())
		if m.GetIsLearner() {
			r.Action = "learner"
		}
	case *pb.MemberRemoveRequest:
		r.member(m.GetID())
	case *pb.MemberUpdateRequest:
		r.member(m.GetID())
		r.urls(m.GetPeerURLs())
	case *pb.MemberPromoteRequest:
		r.member(m.GetID())
	case *pb.MoveLeaderRequest:
		r.member(m.GetTargetID())
	case *pb.AlarmRequest:
		r.Action = m.GetAction().String() + " " + m.GetAlarm().String()
		r.member(m.GetMemberID())
	case *stoapb.SetQuotaRequest:
		r.quota(m.GetQuota().GetRole(), m.GetQuota().GetPrefix())
		r.Limits = fmt.Sprintf("%d bytes, %d keys", m.GetQuota().GetMaxBytes(), m.GetQuota().GetMaxKeys())
	case *stoapb.RemoveQuotaRequest:
		r.quota(m.GetRole(), m.GetPrefix())
	case *stoapb.MoveKeysRequest:
		r.placed("move", m.GetPrefix(), m.GetPartition())
	case *stoapb.PinKeysRequest:
		r.placed("pin", m.GetPrefix(), m.GetPartition())
	case *stoapb.UnpinKeysRequest:
		r.add("prefix", m.GetPrefix(), nil)
	case *stoapb.ResizeRequest:
		r.Action = fmt.Sprintf("%d partitions", m.GetPartitions())
	case *pb.DowngradeRequest:
		r.Action = m.GetAction().String() + " " + m.GetVersion()
	}
}

func (r *Record) placed(how string, prefix []byte, partition uint32) {
	r.Action = fmt.Sprintf("%s to partition %d", how, partition)
	r.add("prefix", prefix, nil)
}

func (r *Record) quota(role string, prefix []byte) {
	if r.Role = role; len(prefix) > 0 {
		r.add("prefix", prefix, nil)
	}
}

func (r *Record) lease(id int64) {
	if id != 0 {
		r.Lease = strconv.FormatInt(id, 16)
	}
}

func (r *Record) member(id uint64) {
	if id != 0 {
		r.Member = strconv.FormatUint(id, 16)
	}
}

// maxURLs is more than a member has.
const maxURLs = 16

// urls leaves out the password that a URL can hold.
func (r *Record) urls(list []string) {
	for _, text := range list[:min(len(list), maxURLs)] {
		if u, err := url.Parse(text); err == nil {
			u.User, u.RawQuery, u.Fragment = nil, "", ""
			r.URLs = append(r.URLs, fault.Readable(u.String()))
		}
	}
}

func (r *Record) permission(p *authpb.Permission) {
	if p != nil {
		r.Permission = p.GetPermType().String()
		r.add("permission", p.GetKey(), p.GetRangeEnd())
	}
}
