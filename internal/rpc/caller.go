package rpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
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
	if v := metadata.ValueFromIncomingContext(ctx, metadataRemaining); len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// maxClientID bounds a name that becomes part of keys.
const maxClientID = 256

// Caller returns the client's name and lease; "" and 0 stand for missing or
// malformed ones.
func Caller(ctx context.Context) (client string, lease int64) {
	if v := metadata.ValueFromIncomingContext(ctx, metadataClient); len(v) > 0 && len(v[0]) <= maxClientID {
		client = v[0]
	}
	if v := metadata.ValueFromIncomingContext(ctx, metadataLease); len(v) > 0 {
		if id, err := strconv.ParseInt(v[0], 16, 64); err == nil && id > 0 {
			lease = id
		}
	}
	return client, lease
}
