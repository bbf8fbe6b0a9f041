package serve

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// A Port is one opened address. The same address may stand in two URLs, http
// and https: then both are spoken on it.
type Port struct {
	URL    url.URL // the first of the URLs with this address
	plain  bool
	secure bool
	ln     net.Listener
}

// Addr is the port's actual address: a URL with port 0 lets the system
// choose.
func (p *Port) Addr() net.Addr { return p.ln.Addr() }

// Close closes a port that is not being served.
func (p *Port) Close() error { return p.ln.Close() }

// Over is a port without TLS whose address something else has opened.
func Over(ln net.Listener) *Port { return &Port{plain: true, ln: ln} }

// Listen opens the addresses of urls, or none of them. flag is named in errors.
func Listen(flag string, urls []url.URL, opts transport.SocketOpts) ([]*Port, error) {
	var ports []*Port
	byAddr := map[string]*Port{}
	for _, u := range urls {
		addr, secure := address(u)
		if p := byAddr[addr]; p != nil {
			p.secure = p.secure || secure
			p.plain = p.plain || !secure
			continue
		}
		ln, err := open(u.Scheme, addr, opts)
		if err != nil {
			CloseAll(ports)
			return nil, listenError(flag, u, err)
		}
		p := &Port{URL: u, plain: !secure, secure: secure, ln: ln}
		byAddr[addr] = p
		ports = append(ports, p)
	}
	return ports, nil
}

// CloseAll closes ports that are not being served.
func CloseAll(ports []*Port) {
	for _, p := range ports {
		p.Close()
	}
}

// Secure reports whether any of the ports uses TLS.
func Secure(ports []*Port) bool {
	for _, p := range ports {
		if p.secure {
			return true
		}
	}
	return false
}

func address(u url.URL) (addr string, secure bool) {
	addr = u.Host
	if u.Scheme == "unix" || u.Scheme == "unixs" {
		addr += u.Path
	}
	return addr, u.Scheme == "https" || u.Scheme == "unixs"
}

// open leaves TLS to the connection: the scheme only tells sockets from TCP.
func open(scheme, addr string, opts transport.SocketOpts) (net.Listener, error) {
	ln, err := transport.NewListenerWithOpts(addr, scheme,
		transport.WithSocketOpts(&opts), transport.WithSkipTLSInfoCheck(true))
	if err != nil {
		return nil, err
	}
	if n := openFiles(); n > 0 {
		ln = transport.LimitListener(ln, n)
	}
	return ln, nil
}

// reservedFiles are kept for the log, the backend and peers when clients use
// up file descriptors.
const reservedFiles = 150

func openFiles() int {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil || lim.Cur <= reservedFiles {
		return 0
	}
	return int(min(lim.Cur-reservedFiles, 1<<31-1))
}

func listenError(flag string, u url.URL, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s %s: another process listens there already: %w", flag, u.String(), err)
	}
	return fmt.Errorf("--%s %s: %w", flag, u.String(), err)
}
