package main

import (
	"log"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stoa-kv/stoa/internal/config"
)

// debugged returns what logs the headers of clients' requests, tokens included, if GODEBUG=http2debug asks for that: in the
// words of Go's HTTP/2, which etcd has for it. What members tell each other, in Go's HTTP/2, isn't logged then,
// because clients' requests would be lost in it. It must be called before any connection is made.
func debugged(cfg *config.Config) func(name, value string) {
	if !http2.VerboseLogs || cfg.GRPCTransport != "own" {
		return nil
	}
	http2.VerboseLogs = false
	return func(name, value string) {
		log.Printf("http2: decoded hpack field %+v", hpack.HeaderField{Name: name, Value: value})
	}
}
