package compose

import (
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/client"
)

var (
	// ErrNoRoute: no route has the key, or a part of the range.
	ErrNoRoute = errors.New("compose: no route for the key")
	// ErrSpans: the request has keys of several clusters, or of routes of one
	// cluster between which there are others. The error's text names the
	// routes.
	ErrSpans = errors.New("compose: the request spans several routes")
	// ErrReserved: in their cluster the keys begin with /stoa/, which those of transactions over
	// clusters, commands and mirrors do.
	ErrReserved = errors.New("compose: the keys below /stoa/ in a cluster are reserved")
	// ErrNotOverSpan: a range over several clusters has an option that only one
	// cluster can serve, such as a revision.
	ErrNotOverSpan = errors.New("compose: not possible over several clusters")
	// ErrTransactions: not possible with keys of a route that has Transactions, or in a
	// transaction over several clusters.
	ErrTransactions = errors.New("compose: not possible with transactions over clusters")
	// ErrBehind: a request that was sent before to the same cluster has failed, when
	// this one had been accepted already. It was not sent.
	ErrBehind = errors.New("compose: not sent, because an earlier request to the cluster has failed")
	// ErrSilent: the cluster did not answer for Config.Timeout.
	ErrSilent = errors.New("compose: no answer in time")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("compose: the client is closed")
	// ErrSessionExpired is the error of all calls of a session once its lease
	// was lost in one cluster. It is client.ErrSessionExpired.
	ErrSessionExpired = client.ErrSessionExpired
)

// ClusterError names the cluster in which a request has failed. It unwraps to
// the cause.
type ClusterError struct {
	Cluster string
	// Unknown: an update that was sent, and may or may not take effect. One that was
	// not (client.ErrNotSent) never will.
	Unknown bool
	Err     error
}

func (e *ClusterError) Error() string {
	unknown := ""
	if e.Unknown {
		unknown = " (whether it took effect is unknown)"
	}
	return fmt.Sprintf("compose: cluster %q: %v%s", e.Cluster, e.Err, unknown)
}

func (e *ClusterError) Unwrap() error { return e.Err }
