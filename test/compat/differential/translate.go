package differential

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// asked are the fields of requests that hold revisions.
var asked = map[protoreflect.FullName]bool{
	"etcdserverpb.RangeRequest.revision":             true,
	"etcdserverpb.RangeRequest.min_mod_revision":     true,
	"etcdserverpb.RangeRequest.max_mod_revision":     true,
	"etcdserverpb.RangeRequest.min_create_revision":  true,
	"etcdserverpb.RangeRequest.max_create_revision":  true,
	"etcdserverpb.Compare.create_revision":           true,
	"etcdserverpb.Compare.mod_revision":              true,
	"etcdserverpb.CompactionRequest.revision":        true,
	"etcdserverpb.WatchCreateRequest.start_revision": true,
}

// request is a copy of a request with its revisions in the terms of the server
// under test.
func (r *revisions) request(m proto.Message) proto.Message {
	m = proto.Clone(m)
	r.walk(m.ProtoReflect(), func(name protoreflect.FullName, rev int64) int64 {
		if asked[name] {
			return r.forth(rev)
		}
		return rev
	})
	return m
}

// future tells whether a request names a revision that was not given out yet.
func (r *revisions) future(m proto.Message) bool {
	found := false
	r.walk(proto.Clone(m).ProtoReflect(), func(name protoreflect.FullName, rev int64) int64 {
		found = found || asked[name] && rev > r.current()
		return rev
	})
	return found
}

// response is a copy of an answer in which all is taken out that may differ; revisions
// come back in the reference's terms.
func (r *revisions) response(m proto.Message) proto.Message {
	m = strip(m)
	r.walk(m.ProtoReflect(), func(name protoreflect.FullName, rev int64) int64 {
		switch name {
		case "etcdserverpb.ResponseHeader.revision":
			return r.floor(rev)
		case "mvccpb.KeyValue.create_revision", "mvccpb.KeyValue.mod_revision", "etcdserverpb.WatchResponse.compact_revision":
			return r.back(rev)
		}
		return rev
	})
	return m
}

// strip takes out what differs between two clusters of one and the same server, and
// sorts what etcd gives in no order.
func strip(m proto.Message) proto.Message {
	m = proto.Clone(m)
	if h := header(m); h != nil {
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	}
	switch m := m.(type) {
	case *pb.AuthenticateResponse:
		m.Token = ""
	case *pb.LeaseTimeToLiveResponse:
		if m.TTL > 0 { // it runs down while one asks the one after the other
			m.TTL = m.GrantedTTL
		}
		slices.SortFunc(m.Keys, slices.Compare)
	case *pb.LeaseLeasesResponse:
		slices.SortFunc(m.Leases, func(a, b *pb.LeaseStatus) int { return int(a.ID - b.ID) })
	}
	return m
}

func header(m proto.Message) *pb.ResponseHeader {
	if h, ok := m.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		return h.GetHeader()
	}
	return nil
}

// walk replaces every int64 field of a message, at any depth.
func (r *revisions) walk(m protoreflect.Message, replace func(protoreflect.FullName, int64) int64) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				r.walk(v.List().Get(i).Message(), replace)
			}
		case f.IsList() || f.IsMap():
		case f.Message() != nil:
			r.walk(v.Message(), replace)
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(replace(f.FullName(), v.Int())))
		}
		return true
	})
}
