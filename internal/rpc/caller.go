package rpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// What a client says of itself in a request's metadata, for extensions.
const (
	metadataClient = "stoa-client-id" // any name
	metadataLease  = "stoa-lease"     // a lease in hexadecimal, that its keys can be tied to
)

// maxClientID bounds a name that becomes part of keys.
const maxClientID = 256

// Caller says who sends a request; "" and 0 stand for what it doesn't say, or not
// in a form that can be used.
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
