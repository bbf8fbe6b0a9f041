package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/password"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/token"
)

// AuthChange changes users, roles or permissions, or whether they are enforced. It takes the
// passwords out of the request, and logs their hashes.
func (n *Node) AuthChange(ctx context.Context, r *pb.InternalRaftRequest) (*pb.AuthStatusResponse, error) {
	if err := n.hashPassword(ctx, r); err != nil {
		return nil, err
	}
	for end := n.clock() + int64(3*versionInterval); ; {
		resp, err := submitSystem[*pb.AuthStatusResponse](ctx, n, command.Auth, r)
		if !n.early(err, end) || n.pause(ctx, shortly) != nil {
			return resp, err
		}
	}
}

// hashPassword does for the requests with a password what etcd's server does for each of the
// two. Only for root: it takes a tenth of a second of a core.
func (n *Node) hashPassword(ctx context.Context, r *pb.InternalRaftRequest) error {
	var text, hash *string
	if add := r.AuthUserAdd; add != nil && !add.GetOptions().GetNoPassword() {
		text, hash = &add.Password, &add.HashedPassword
	}
	if change := r.AuthUserChangePassword; change != nil && change.Password != "" {
		text, hash = &change.Password, &change.HashedPassword
	}
	if text == nil {
		return nil
	}
	if err := n.Permit(ctx, true); err != nil {
		return err
	}
	plain := []byte(*text)
	*text = ""
	return n.hash(ctx, func(ctx context.Context) error {
		var salt [password.SaltBytes]byte
		if _, err := rand.Read(salt[:]); err != nil {
			return fmt.Errorf("drawing a salt: %w", err)
		}
		b, err := n.passwords.Generate(ctx, plain, salt[:], n.cfg.BcryptCost)
		*hash = base64.StdEncoding.EncodeToString(b)
		return err
	})
}

// hash gives run, which waits for n.passwords, a context that ends with this server, too.
func (n *Node) hash(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.life, func() { cancel(fault.Stopped) })()
	err := run(ctx)
	if errors.Is(err, password.ErrFull) {
		return fault.TooManyRequests
	}
	return err
}

// maxPasswordsWaiting bounds how many requests wait for a password to be hashed: each of them
// is a stream and a goroutine.
const maxPasswordsWaiting = 1000

// newPasswords leaves half of the cores to others.
func newPasswords() (*password.Queue, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("drawing a secret: %w", err)
	}
	return password.NewQueue(password.Config{
		Parallel: max(1, runtime.GOMAXPROCS(0)/2), Waiting: maxPasswordsWaiting, Used: cpuTime, Secret: secret,
	}), nil
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Authenticate gives a user a token for its password. If the password is changed meanwhile
// it is compared again.
func (n *Node) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	given := []byte(r.GetPassword())
	r.Password = "" // so that no log line has it
	for {
		c, now, err := n.strictAuth(ctx)
		if err != nil {
			return nil, err
		}
		u, err := n.compare(ctx, now, r.GetName(), given)
		if err != nil {
			if !errors.Is(err, fault.AuthNotEnabled) {
				n.log.Warn("invalid authentication was requested", zap.String("user", r.GetName()), zap.Error(err))
			}
			return nil, err
		}
		resp, err := n.tokenFor(ctx, c, now, u)
		if !errors.Is(err, fault.AuthOldRevision) {
			return resp, err
		}
	}
}

// compare returns the user whose password it is.
func (n *Node) compare(ctx context.Context, now *auth.State, name string, given []byte) (*auth.User, error) {
	if !now.Enabled {
		return nil, fault.AuthNotEnabled
	}
	u := now.User(name)
	switch {
	case u == nil:
		return nil, fault.AuthFailed
	case u.NoPassword:
		return nil, fault.NoPasswordUser
	}
	err := n.hash(ctx, func(ctx context.Context) error {
		ok, err := n.passwords.Matches(ctx, u.Password, given)
		if err == nil && !ok {
			return fault.AuthFailed
		}
		return err
	})
	return u, err
}

// tokenFor makes a token. A simple one goes through the log of partition 0, by which all
// servers learn of it.
func (n *Node) tokenFor(ctx context.Context, c *core, at *auth.State, u *auth.User) (*pb.AuthenticateResponse, error) {
	head := &pb.ResponseHeader{Revision: n.Revision()}
	if j := n.cfg.Tokens.JWT; j != nil {
		text, err := j.Sign(u.Name, at.Revision, now())
		return &pb.AuthenticateResponse{Header: head, Token: text}, err
	}
	prefix, err := token.Prefix()
	if err != nil {
		return nil, err
	}
	req := &pb.InternalRaftRequest{Authenticate: &pb.InternalAuthenticateRequest{Name: u.Name, SimpleToken: prefix}}
	out, err := n.propose0(ctx, c, req, u.Credential)
	if err != nil {
		return nil, err
	}
	return &pb.AuthenticateResponse{Header: head, Token: token.Text(prefix, out.Index)}, nil
}

// propose0 submits a request to the log of partition 0, and waits until it was applied.
func (n *Node) propose0(ctx context.Context, c *core, req *pb.InternalRaftRequest, user uint64) (replica.Outcome, error) {
	began := n.clock()
	body, err := proto.Marshal(req)
	if err != nil {
		return replica.Outcome{}, err
	}
	done := make(chan replica.Outcome, 1)
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Auth, User: user, Body: body}, Parts: placement.Of(0),
		Done: func(out replica.Outcome) { done <- out },
	})
	select {
	case out := <-done:
		n.requests[command.Auth][success(out.Err)].Observe(time.Duration(n.clock() - began))
		return out, out.Err
	case <-ctx.Done():
		return replica.Outcome{}, context.Cause(ctx)
	}
}

// strictAuth is the state of users and roles in a core, no older than the call, to be told: not by a server that is fenced, where also
// an error such as that there is no such user may be wrong.
func (n *Node) strictAuth(ctx context.Context) (*core, *auth.State, error) {
	c, err := n.strict(ctx, placement.Of(0))
	if err != nil {
		return nil, nil, err
	}
	now := c.machine.Auth()
	if n.Fenced() {
		return nil, nil, fault.Fenced
	}
	return c, now, nil
}

// authState is the present state of users and roles, no older than the call, for a user of
// it.
func (n *Node) authState(ctx context.Context) (now *auth.State, u *auth.User, err error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, now, err = n.strictAuth(ctx); err != nil {
		return nil, nil, err
	}
	u, err = as(ctx, n, &who, func(who identity) (*auth.User, error) { return now.Authorize(who.user) })
	return now, u, err
}

// AuthStatus says whether permissions are enforced, to everybody.
func (n *Node) AuthStatus(ctx context.Context) (*pb.AuthStatusResponse, error) {
	if _, err := n.identify(ctx); errors.Is(err, fault.InvalidAuthToken) {
		return nil, err
	}
	_, now, err := n.strictAuth(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.AuthStatusResponse{Header: n.head(), Enabled: now.Enabled, AuthRevision: now.Revision}, nil
}

func (n *Node) head() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: n.Revision()} }

// UserGet returns the roles of a user, to root and to the user itself.
func (n *Node) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MaySee(r.GetName())
	}
	if err != nil {
		return nil, err
	}
	u := now.User(r.GetName())
	if u == nil {
		return nil, fault.UserNotFound
	}
	return &pb.AuthUserGetResponse{Header: n.head(), Roles: u.Roles}, nil
}

// UserList returns the names of all users, to root.
func (n *Node) UserList(ctx context.Context) (*pb.AuthUserListResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MustBeRoot()
	}
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserListResponse{Header: n.head(), Users: now.Users()}, nil
}

// RoleGet returns the permissions of a role, to root and to the users who have it.
func (n *Node) RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MaySeeRole(r.GetRole())
	}
	if err != nil {
		return nil, err
	}
	role := now.Role(r.GetRole())
	if role == nil {
		return nil, fault.RoleNotFound
	}
	resp := &pb.AuthRoleGetResponse{Header: n.head(), Perm: role.Permissions}
	if role.Name == auth.Root { // which may do everything, whatever it was granted
		resp.Perm = []*authpb.Permission{{PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0}}}
	}
	return resp, nil
}

// RoleList returns the names of all roles, to root.
func (n *Node) RoleList(ctx context.Context) (*pb.AuthRoleListResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MustBeRoot()
	}
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleListResponse{Header: n.head(), Roles: now.Roles()}, nil
}

// AuthEnabled reports whether permissions are enforced.
func (n *Node) AuthEnabled() bool { return n.core.Load().machine.Auth().Enabled }

// AuthRevision counts the changes of users and roles.
func (n *Node) AuthRevision() uint64 { return n.core.Load().machine.Auth().Revision }

// known refuses, before it costs a place in the log, a write of a client who is no user, if
// permissions are enforced here and on the leader.
func (n *Node) known(ctx context.Context, who identity) error {
	if who.user != 0 {
		return nil
	}
	c, err := n.present(ctx)
	if err != nil || !c.machine.Auth().Enabled {
		return err
	}
	if c, err = n.strict(ctx, placement.Of(0)); err != nil {
		return err
	}
	_, err = c.machine.Auth().Authorize(who.user)
	return err
}

// planned adds the partitions of leases to the plan of a write.
func planned(c *core, p apply.Plan, req proto.Message, user uint64) apply.Plan {
	if user != 0 {
		p.Parts |= c.machine.ForLeases(user, req)
	}
	return p
}
