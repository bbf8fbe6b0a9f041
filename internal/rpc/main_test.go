package rpc

import (
	"net"
	"os"
	"testing"
)

// own says which of a server's transports the tests use.
var own bool

// Front is that transport.
func Front(s *Server) interface{ Serve(net.Listener) error } {
	if own {
		return s.Own
	}
	return s
}

// TestMain runs all tests on both transports.
func TestMain(m *testing.M) {
	code := m.Run()
	own = true
	os.Exit(max(code, m.Run()))
}
