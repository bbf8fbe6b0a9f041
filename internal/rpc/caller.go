package rpc

import (
	"context"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/stoa-kv/stoa/internal/incoming"
)

// A client's metadata for extensions.
const (
	metadataClient = "stoa-client-id" // any name
	metadataLease  = "stoa-lease"     // a lease in hexadecimal, that its keys can be tied to
)

// metadataRemaining is how much of a lease that is being granted remains, in seconds.
const metadataRemaining = "stoa-remaining-ttl"

// remainingTTL returns 0 for a missing or malformed value.
func remainingTTL(ctx context.Context) int64 {
	if v := incoming.First(ctx, metadataRemaining); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// metadataSessions asks LeaseLeases for the leases of sessions, too, whatever its value is.
const metadataSessions = "stoa-sessions"

// maxClientID bounds a name that becomes part of keys.
const maxClientID = 256

// Caller returns the client's name and lease; "" and 0 stand for missing or
// malformed ones.
func Caller(ctx context.Context) (client string, lease int64) {
	if v := incoming.First(ctx, metadataClient); len(v) <= maxClientID {
		client = v
	}
	if v := incoming.First(ctx, metadataLease); v != "" {
		if id, err := strconv.ParseInt(v, 16, 64); err == nil && id > 0 {
			lease = id
		}
	}
	return client, lease
}

// Token returns the token of a request, in either of the two fields that etcd's clients and
// gateway use; "" without one.
func Token(ctx context.Context) string {
	for _, field := range [...]string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		if v := incoming.Values(ctx, field); len(v) > 0 {
			return strings.TrimPrefix(v[0], "Bearer ")
		}
	}
	return ""
}

// metadataGateway marks requests that come through a gateway, over its own connection.
const metadataGateway = "grpcgateway-accept"

// CommonName returns that of the certificate with which the client has connected, if it was
// verified; "" without one. The certificate of a gateway doesn't speak for its clients.
func CommonName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(incoming.Values(ctx, metadataGateway)) > 0 {
		return ""
	}
	for _, chain := range info.State.VerifiedChains {
		if len(chain) > 0 {
			return chain[0].Subject.CommonName
		}
	}
	return ""
}
