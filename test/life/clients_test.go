package life

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
)

// begins starts writers, watches and leases.
func (l *life) begins() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.ctx))
	l.t.Cleanup(func() {
		cancel()
		l.load.done.Wait()
	})
	l.startSidecar()
	const pace = 60 * time.Millisecond
	for i := range 2 {
		l.load.done.Go(func() { l.load.write(ctx, fmt.Sprintf("etcd%d", i), uint64(i), pace, l.openEtcd) })
		l.load.done.Go(func() { l.load.write(ctx, fmt.Sprintf("session%d", i), uint64(i), pace, l.openSession) })
	}
	l.load.done.Go(func() { l.load.write(ctx, "sidecar", 9, pace, l.openSidecar) })
	for _, name := range []string{"etcd", "session", "sidecar"} {
		w := newWatcher(l.load, name)
		l.watchers = append(l.watchers, w)
		switch name {
		case "etcd":
			l.load.done.Go(func() { w.follow(ctx, watcherOf(l.openEtcd)) })
		case "sidecar":
			l.load.done.Go(func() { w.follow(ctx, watcherOf(l.openSidecar)) })
		case "session":
			l.load.done.Go(func() { w.session(ctx, l.session) })
		}
	}
	for i := range 4 {
		l.load.done.Go(func() { l.keep(ctx, i) })
	}
}

func watcherOf(open func(context.Context) (putter, func(), <-chan struct{}, error)) func(context.Context) (clientv3.Watcher, func(), error) {
	return func(ctx context.Context) (clientv3.Watcher, func(), error) {
		p, end, _, err := open(ctx)
		if err != nil {
			return nil, nil, err
		}
		return p.(*clientv3.Client).Watcher, end, nil
	}
}

// access is how a client comes to the cluster. A change of password or members gives a new one.
type access struct {
	endpoints      []string
	tls            *tls.Config
	user, password string
}

func (a access) etcd() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: a.endpoints, TLS: a.tls, Username: a.user, Password: a.password,
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop()})
}

func (a access) stoa() (*client.Client, error) {
	return client.New(client.Config{Endpoints: a.endpoints, TLS: a.tls, Username: a.user, Password: a.password})
}

func (l *life) access(user string) access {
	a := access{tls: l.ca.Client(user), user: user, password: "secret"}
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	for _, s := range l.c.Servers {
		a.endpoints = append(a.endpoints, s.ClientURL)
	}
	if user == "app" {
		a.password = l.password
	}
	return a
}

func (l *life) openEtcd(context.Context) (putter, func(), <-chan struct{}, error) {
	anew := l.load.anew()
	cli, err := l.access("app").etcd()
	if err != nil {
		return nil, nil, nil, err
	}
	return cli, func() { cli.Close() }, anew, nil
}

func (l *life) openSidecar(context.Context) (putter, func(), <-chan struct{}, error) {
	cli, err := access{endpoints: []string{l.sidecar.ClientURL}}.etcd()
	if err != nil {
		return nil, nil, nil, err
	}
	return cli, func() { cli.Close() }, nil, nil
}

func (l *life) session(ctx context.Context) (*client.Session, func(), error) {
	cli, err := l.access("app").stoa()
	if err != nil {
		return nil, nil, err
	}
	s, err := cli.Session(ctx)
	if err != nil {
		cli.Close()
		return nil, nil, err
	}
	return s, func() {
		ending, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Close(ending)
		cli.Close()
	}, nil
}

func (l *life) openSession(ctx context.Context) (putter, func(), <-chan struct{}, error) {
	anew := l.load.anew()
	s, end, err := l.session(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-s.Done():
		case <-anew:
		}
	}()
	return s, end, closed, nil
}

// startSidecar starts, or starts anew, the sidecar, for the cluster's present members.
func (l *life) startSidecar() {
	port := ""
	if l.sidecar != nil {
		_, _, err := l.sidecar.Stop()
		require.NoError(l.t, err)
		port = l.sidecar.ClientURL
	}
	flags := []string{"--cacert=" + l.ca.File("ca.pem"), "--cert=" + l.ca.File("app.pem"), "--key=" + l.ca.File("app.key"), "--user=app:" + l.password}
	s, err := l.c.Sidecar("sidecar", flags...)
	require.NoError(l.t, err)
	if port != "" {
		s = s.Without("--listen-client-urls").With("--listen-client-urls=" + port)
		s.ClientURL = port
	}
	require.NoError(l.t, s.Start())
	l.t.Cleanup(func() { _ = s.Kill() })
	require.NoError(l.t, s.WaitReady(l.ctx))
	l.sidecar = s
}
