package sidecar

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/protofield"
	"github.com/stoa-kv/stoa/internal/sidecar/front"
)

// A client that has got an answer knows something of the keys at its revision. Its later serializable reads of
// cached prefixes show no less (cached.go, newest). "Its" are those of its connection: etcd's clients have one.

// tells reports whether a method's answers tell something of keys. Keep-alives don't.
func tells(method string) bool {
	if method == pb.Lease_LeaseRevoke_FullMethodName || method == pb.Watch_Watch_FullMethodName {
		return true
	}
	for _, d := range []grpc.ServiceDesc{pb.KV_ServiceDesc, lockpb.Lock_ServiceDesc, lockpb.Election_ServiceDesc} {
		if strings.HasPrefix(method, "/"+d.ServiceName+"/") {
			return true
		}
	}
	return false
}

// revisionOf is the revision in the header of an answer to a method; 0 if there is none.
func revisionOf(method string, answer []byte) int64 {
	const headerField, revisionField, rangeResponseField = 1, 3, 1
	if method == pb.KV_RangeStream_FullMethodName {
		of, _ := protofield.Find(answer, rangeResponseField, protowire.BytesType)
		answer = of.Bytes
	}
	header, _ := protofield.Find(answer, headerField, protowire.BytesType)
	revision, _ := protofield.Find(header.Bytes, revisionField, protowire.VarintType)
	return int64(revision.Varint)
}

// seeing is a stream that tells something of keys.
type seeing struct {
	grpc.ServerStream
	method     string
	connection *front.Connection
}

func (s *seeing) SendMsg(m any) error {
	s.connection.See(revisionOf(s.method, m.(*frame).data))
	return s.ServerStream.SendMsg(m)
}
