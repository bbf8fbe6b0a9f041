package life

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// certificates replaces the certificates in place, by mv.
func (l *life) certificates() {
	l.reissue()
	l.load.renew()
	if l.rnd.IntN(2) == 0 {
		l.rolling(func(s *process.Server) error { _, _, err := s.Stop(); return err })
	}
}

func (l *life) changePassword() {
	password := fmt.Sprint("p", time.Now().UnixNano())
	l.load.still(func() {
		l.passwd(password)
		l.load.mu.Lock()
		defer l.load.mu.Unlock()
		l.password = password
	})
	l.load.renew()
	l.startSidecar()
}

// rights takes the right of app away, and gives it back: nothing is written between.
func (l *life) rights() {
	l.load.still(l.revokeAndGrant)
	l.ctl("role add other")
	l.ctl("user add other:other")
	l.either("user grant-role other other")
	l.either("user get other")
	l.either("role delete other")
	l.either("user delete other")
	l.either("user list")
}

func (l *life) revokeAndGrant() {
	l.either("role revoke-permission app /life/ --prefix")
	cli, err := l.access("app").etcd()
	require.NoError(l.t, err)
	defer cli.Close()
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
	_, err = cli.Put(ctx, "/life/refused", "x")
	cancel()
	require.ErrorContains(l.t, err, "permission denied")
	l.either("role grant-permission app readwrite /life/ --prefix")
}

func (l *life) usersOff() {
	l.either("auth status")
	l.either("auth disable")
	l.noUsers = true
	time.Sleep(3 * time.Second)
	l.check("without users")
	l.either("auth enable")
	l.noUsers = false
}
