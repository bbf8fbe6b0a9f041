package auth

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Authorize returns the user with a credential. Without one everything is permitted: it is
// nil if permissions aren't enforced, and for [Own].
func (s *State) Authorize(credential uint64) (*User, error) {
	if !s.Enabled || credential == Own {
		return nil, nil
	}
	if credential == 0 {
		return nil, fault.UserEmpty
	}
	u := s.byCredential[credential]
	if u == nil {
		return nil, fault.AuthOldRevision
	}
	return u, nil
}

// May refuses a client's request for keys that the user with a credential has no permission for. Leases
// are not looked at.
func (s *State) May(credential uint64, req proto.Message) error {
	u, err := s.Authorize(credential)
	if err != nil {
		return err
	}
	return u.May(req)
}

// MayRead refuses to read a key, or a range, that the user has no permission for.
func (u *User) MayRead(key, end []byte) error {
	if u == nil || u.root || u.read.covers(key, end) {
		return nil
	}
	return fault.PermissionDenied
}

// MayWrite refuses to write a key, or a range, that the user has no permission for.
func (u *User) MayWrite(key, end []byte) error {
	if u == nil || u.root || u.write.covers(key, end) {
		return nil
	}
	return fault.PermissionDenied
}

// Touches reports whether there is a key of a range, or the key alone without an end, that the
// user may read or write.
func (u *User) Touches(key, end []byte) bool {
	return u == nil || u.root || u.read.touch(key, end) || u.write.touch(key, end)
}

// MayTxn refuses a transaction of which any comparison or operation, in any branch, isn't
// permitted. The leases of puts are not looked at.
func (u *User) MayTxn(r *pb.TxnRequest) error {
	if u == nil || u.root {
		return nil
	}
	for _, c := range r.GetCompare() {
		if err := u.MayRead(c.GetKey(), c.GetRangeEnd()); err != nil {
			return err
		}
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			if err := u.mayOperate(op); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *User) mayOperate(op *pb.RequestOp) error {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return u.MayRead(r.RequestRange.GetKey(), r.RequestRange.GetRangeEnd())
	case *pb.RequestOp_RequestPut:
		return u.MayChange(r.RequestPut.GetKey(), nil, r.RequestPut.GetPrevKv())
	case *pb.RequestOp_RequestDeleteRange:
		return u.MayChange(r.RequestDeleteRange.GetKey(), r.RequestDeleteRange.GetRangeEnd(), r.RequestDeleteRange.GetPrevKv())
	case *pb.RequestOp_RequestTxn:
		return u.MayTxn(r.RequestTxn)
	}
	return nil
}

// MayChange is MayWrite for a request that may ask for the previous values.
func (u *User) MayChange(key, end []byte, prev bool) error {
	if err := u.MayWrite(key, end); err != nil || !prev {
		return err
	}
	return u.MayRead(key, end)
}

// May refuses a client's request for keys that the user has no permission for. Leases are not
// looked at.
func (u *User) May(req proto.Message) error {
	if u == nil || u.root {
		return nil
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		return u.MayChange(r.GetKey(), nil, r.GetPrevKv())
	case *pb.DeleteRangeRequest:
		return u.MayChange(r.GetKey(), r.GetRangeEnd(), r.GetPrevKv())
	case *pb.RangeRequest:
		return u.MayRead(r.GetKey(), r.GetRangeEnd())
	case *pb.WatchCreateRequest:
		return u.MayRead(r.GetKey(), r.GetRangeEnd())
	case *pb.TxnRequest:
		return u.MayTxn(r)
	}
	return fault.PermissionDenied
}

// MaySee refuses a user the description of another, unless it has the role root.
func (u *User) MaySee(name string) error {
	if u == nil || u.root || u.Name == name {
		return nil
	}
	return fault.PermissionDenied
}

// MaySeeRole refuses a user the description of a role that it doesn't have.
func (u *User) MaySeeRole(name string) error {
	if u == nil || u.root {
		return nil
	}
	for _, r := range u.Roles {
		if r == name {
			return nil
		}
	}
	return fault.PermissionDenied
}

// MustBeRoot refuses everybody without the role root.
func (u *User) MustBeRoot() error {
	if u == nil || u.root {
		return nil
	}
	return fault.PermissionDenied
}

// Client is the ID by which extensions know a client of the user: the one that the client
// sends, which must be the user's name or begin with the name and a slash, or the name. In
// the name '%' and '/' are written as %25 and %2F, so that no ID can belong to two users.
func (u *User) Client(sent string) (string, error) {
	if u == nil {
		return sent, nil
	}
	own := u.Name
	if strings.ContainsAny(own, "%/") {
		own = strings.NewReplacer("%", "%25", "/", "%2F").Replace(own)
	}
	if sent == "" || sent == own {
		return own, nil
	}
	if rest, ok := strings.CutPrefix(sent, own); ok && rest[0] == '/' {
		return sent, nil
	}
	return "", fault.ForeignClient.With(fmt.Sprintf("stoa: client ID %q is not one of user %q: use %q, or one that begins with %q", sent, u.Name, own, own+"/"))
}
