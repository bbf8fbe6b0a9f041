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
