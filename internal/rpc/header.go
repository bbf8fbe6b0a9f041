package rpc

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// header fills in the fields of an answer's header that the node leaves empty.
type header struct{ info Info }

// errNoHeader is a bug: a node's answers have headers.
var errNoHeader = errors.New("answer without a header")

// fill completes a header. An answer without a revision of its own gets the
// server's.
func (h header) fill(rh *pb.ResponseHeader) error {
	if rh == nil {
		return errNoHeader
	}
	h.identify(rh)
	if rh.Revision == 0 {
		rh.Revision = h.info.Revision()
	}
	return nil
}

// filled is what a client gets for an answer of the node.
func filled[R interface{ GetHeader() *pb.ResponseHeader }](h header, resp R, err error) (R, error) {
	if err != nil {
		var none R
		return none, toStatus(err)
	}
	return resp, h.fill(resp.GetHeader())
}

// identify leaves the revision alone, for answers that must not have the
// server's if they have none.
func (h header) identify(rh *pb.ResponseHeader) {
	rh.ClusterId = h.info.ClusterID()
	rh.MemberId = h.info.MemberID()
	rh.RaftTerm = h.info.RaftTerm()
}

// new is a complete header at the server's revision.
func (h header) new() *pb.ResponseHeader {
	rh := &pb.ResponseHeader{Revision: h.info.Revision()}
	h.identify(rh)
	return rh
}
