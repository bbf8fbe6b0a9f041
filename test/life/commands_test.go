package life

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// ctl runs a command of stoactl that has to succeed, try that may fail.
func (l *life) ctl(command string) string {
	l.t.Helper()
	out, err := l.try("stoactl", command)
	require.NoError(l.t, err, "%s: %s", command, out)
	return out
}

// either runs it with stoactl or with etcdctl.
func (l *life) either(command string) string {
	l.t.Helper()
	name := "stoactl"
	if l.rnd.IntN(2) == 0 {
		name = "etcdctl"
	}
	out, err := l.try(name, command)
	require.NoError(l.t, err, "%s %s: %s", name, command, out)
	return out
}

func (l *life) try(program, command string) (string, error) {
	return l.at(program, l.c.Endpoints(), command)
}

func (l *life) at(program string, endpoints []string, command string) (string, error) {
	l.t.Helper()
	path, err := process.Stoactl()
	if program != "stoactl" {
		path, err = process.Peer(program)
	}
	require.NoError(l.t, err)
	args := []string{"--endpoints=" + strings.Join(endpoints, ","), "--cacert=" + l.ca.File("ca.pem"),
		"--cert=" + l.ca.File("root.pem"), "--key=" + l.ca.File("root.key"), "--command-timeout=30s", "--user=root:secret"}
	if l.load == nil || l.noUsers {
		args = args[:len(args)-1]
	}
	ctx, cancel := context.WithTimeout(l.ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, strings.Fields(command)...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// until repeats a command until it succeeds.
func (l *life) until(endpoints []string, command string) {
	l.t.Helper()
	var out string
	ok := eventually(time.Minute, func() bool {
		var err error
		out, err = l.at("etcdctl", endpoints, command)
		return err == nil
	})
	require.True(l.t, ok, "%s: %s", command, out)
}

func (l *life) shell(name string, args ...string) string {
	l.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(l.t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// passwd changes the password of app.
func (l *life) passwd(password string) {
	l.t.Helper()
	path, err := process.Stoactl()
	require.NoError(l.t, err)
	cmd := exec.Command(path, "--endpoints="+strings.Join(l.c.Endpoints(), ","), "--cacert="+l.ca.File("ca.pem"),
		"--cert="+l.ca.File("root.pem"), "--key="+l.ca.File("root.key"), "--user=root:secret", "user", "passwd", "app", "--interactive=false")
	cmd.Stdin = strings.NewReader(password + "\n")
	out, err := cmd.CombinedOutput()
	require.NoError(l.t, err, "%s", out)
}

// reissue replaces the certificate of the servers, with mv.
func (l *life) reissue() {
	l.t.Helper()
	l.ca.Issue("next", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	for _, kind := range []string{".key", ".pem"} {
		require.NoError(l.t, os.Rename(l.ca.File("next"+kind), l.ca.File("server"+kind)))
	}
}

// root is a client that is closed with the call.
func (l *life) root(endpoints []string, do func(context.Context, *clientv3.Client)) {
	a := l.access("root")
	a.endpoints = endpoints
	if l.noUsers {
		a.user, a.password = "", ""
	}
	cli, err := a.etcd()
	require.NoError(l.t, err)
	defer cli.Close()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	do(ctx, cli)
}

func (l *life) web() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: l.ca.Client("root"), DisableKeepAlives: true}}
}

func get(web *http.Client, url string) (status, body string) {
	resp, err := web.Get(url)
	if err != nil {
		return err.Error(), ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), ""
	}
	return resp.Status, string(text)
}

func eventually(atMost time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(atMost); ; time.Sleep(100 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
