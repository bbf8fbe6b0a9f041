package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// A subject with this behind its name enforces permissions: its load comes as a user who may
// read and write the keys, and nothing else.
const authSuffix = "+auth"

// authArgs keep a server's tokens longer than a run may leave it alone.
var authArgs = []string{"--auth-token-ttl=86400"}

const (
	benchUser, benchRole, benchPrefix = "bench", "bench", "/bench/"
	benchPassword                     = "bench"
)

// withUsers is p with subjects that enforce permissions; stoa comes second.
func (p *plan) withUsers(first subject) (*plan, error) {
	own := *p
	etcd, err := process.Choose("etcd")
	if err != nil {
		return nil, err
	}
	own.subjects = []subject{
		first,
		{name: "stoa" + authSuffix, bin: p.stoa, auth: true},
		{name: "etcd" + authSuffix, bin: etcd, auth: true},
	}
	return &own, nil
}

// measureUsers measures etcd's API with users, beside stoa without them, and beside etcd with users.
func measureUsers(p *plan) (section, error) {
	own, err := p.withUsers(subject{name: "stoa", bin: p.stoa})
	if err != nil {
		return section{}, err
	}
	own.ops, own.clients = []string{"put", "get"}, []int{unaryClients}
	rep := &report{plan: own, only: true, goals: func(c cell, own, base []sample) []verdict {
		return []verdict{atMost("users, "+c.name()+": CPU per operation", compare(own, base, byCPU), 1.03)}
	}}
	if err := runNodes(own, slices.Max(p.nodes), rep); err != nil {
		return section{}, err
	}
	return rep.section(), nil
}

// measureLogins measures small puts while users log in and change: on one server, because half
// of the cores that a server hashes on are all cores if there are three to a machine.
func measureLogins(p *plan) (section, error) {
	own, err := p.withUsers(subject{})
	if err != nil {
		return section{}, err
	}
	own.subjects[0] = own.subjects[2]
	own.subjects = own.subjects[:2]
	s, err := own.stall([]disturbance{
		{name: fmt.Sprintf("%d logins at once, every second", logins), do: (*staller).logIn},
		{name: fmt.Sprintf("%d at a time with wrong passwords", logins), do: (*staller).guess},
		{name: fmt.Sprintf("%d changes of %d users a second", changesPerSecond, manyUsers), prepare: (*staller).addUsers, do: (*staller).changeUsers},
	}, 1)
	s.text += loginsNote
	return s, err
}

const loginsNote = " All log in as one user: stoa hashes its password the first time, and remembers it as a digest; wrong ones are always hashed."

const (
	logins           = 500
	guessTime        = 10 * time.Second
	manyUsers        = 1000
	changesPerSecond = 10
)

// dial connects a client of etcd's to all servers of a cluster; user may be "".
func dial(c *process.Cluster, user string) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	if user != "" {
		cfg.Username, cfg.Password = user, benchPassword
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting as %q: %w", user, err)
	}
	return client, nil
}

// enableAuth makes a cluster enforce permissions, and returns the token of the user of the
// load.
func enableAuth(cluster *process.Cluster) (token string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := dial(cluster, "")
	if err != nil {
		return "", err
	}
	defer c.Close()
	permission := clientv3.PermissionType(clientv3.PermReadWrite)
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", benchPassword); return err },
		func() error { _, err := c.RoleAdd(ctx, "root"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.UserAdd(ctx, benchUser, benchPassword); return err },
		func() error { _, err := c.RoleAdd(ctx, benchRole); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, benchRole, benchPrefix, clientv3.GetPrefixRangeEnd(benchPrefix), permission)
			return err
		},
		func() error { _, err := c.UserGrantRole(ctx, benchUser, benchRole); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			return "", fmt.Errorf("setting up users: %w", err)
		}
	}
	resp, err := c.Authenticate(ctx, benchUser, benchPassword)
	if err != nil {
		return "", fmt.Errorf("authenticating: %w", err)
	}
	return resp.Token, nil
}

// logIn has many clients authenticate at once, and waits for all, and for the end of the second. Those that a server refuses
// because there are too many, as etcd's do, try again.
func (s *staller) logIn() error {
	defer time.Sleep(time.Until(time.Now().Add(leastTime)))
	c, err := dial(s.cluster, "")
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	a := pb.NewAuthClient(c.ActiveConnection())
	failed := make([]error, logins)
	each(logins, func(i int) {
		for ok := false; !ok && ctx.Err() == nil; ok = failed[i] == nil {
			if failed[i] != nil {
				time.Sleep(100 * time.Millisecond)
			}
			_, failed[i] = a.Authenticate(ctx, &pb.AuthenticateRequest{Name: benchUser, Password: benchPassword})
		}
	})
	return errors.Join(failed...)
}

// guess has as many clients send wrong passwords for some seconds, each the next one as soon as it
// was refused.
func (s *staller) guess() error {
	c, err := dial(s.cluster, "")
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), guessTime)
	defer cancel()
	a := pb.NewAuthClient(c.ActiveConnection())
	right := make([]error, logins)
	each(logins, func(i int) {
		for n := 0; ctx.Err() == nil; n++ {
			_, err := a.Authenticate(ctx, &pb.AuthenticateRequest{Name: benchUser, Password: fmt.Sprint(benchPassword, i, n)})
			if err == nil {
				right[i] = errors.New("a wrong password was taken")
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return errors.Join(right...)
}

// addUsers adds many users, without passwords: to hash those isn't what is measured.
func (s *staller) addUsers() error {
	return s.asRoot(func(ctx context.Context, c *clientv3.Client) error {
		have, err := c.UserList(ctx)
		if err != nil {
			return err
		}
		for i := len(have.Users); i < manyUsers; i++ {
			if _, err := c.UserAddWithOptions(ctx, fmt.Sprintf("user%d", i), "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeUsers gives users a role, and takes it away again, for some seconds.
func (s *staller) changeUsers() error {
	return s.asRoot(func(ctx context.Context, c *clientv3.Client) error {
		tick := time.NewTicker(time.Second / changesPerSecond)
		defer tick.Stop()
		for i := range changesPerSecond * int(s.quietTime()/time.Second) {
			<-tick.C
			user := fmt.Sprintf("user%d", manyUsers-1-i/2)
			var err error
			if i%2 == 0 {
				_, err = c.UserGrantRole(ctx, user, benchRole)
			} else {
				_, err = c.UserRevokeRole(ctx, user, benchRole)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) asRoot(do func(context.Context, *clientv3.Client) error) error {
	c, err := dial(b.cluster, "root")
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	if err := do(ctx, c); err != nil {
		return fmt.Errorf("changing users: %w", err)
	}
	return nil
}
