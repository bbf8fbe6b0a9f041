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

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/password"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/token"
)

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
		text, err := j.Sign(u.Name, at.Revision, time.Now())
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
		n.requested(command.Auth, began, out.Err)
		return out, out.Err
	case <-ctx.Done():
		return replica.Outcome{}, context.Cause(ctx)
	}
}
