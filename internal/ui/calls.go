package ui

import (
	"net/http"
	"strings"
)

// reads are the methods that the page calls to show something, and to log in.
var reads = map[string]bool{
	"/v3/kv/range":             true,
	"/v3/watch":                true,
	"/v3/lease/leases":         true,
	"/v3/lease/timetolive":     true,
	"/v3/cluster/member/list":  true,
	"/v3/maintenance/status":   true,
	"/v3/auth/status":          true,
	"/v3/auth/authenticate":    true,
	"/v3/stoa/partitions/list": true,
	"/v3/stoa/quotas/list":     true,
	"/v3/stoa/extensions/logs": true,
}

// writes are the methods that need a token.
var writes = map[string]bool{
	"/v3/kv/txn": true, // all changes compare the key's revision
}

// calls passes on the requests of the page to the gateway.
type calls struct{ o Options }

// The page's client ID, for extensions. One of a user is the user's name and this.
const (
	clientID     = "stoa-ui"
	clientHeader = "Grpc-Metadata-Stoa-Client-Id"
)

// sessionsHeader has leases listed with those of sessions.
const sessionsHeader = "Grpc-Metadata-Stoa-Sessions"

// userHeader names the user of the token. It gives no rights: an extension that matches a request
// refuses a client ID of another user.
const userHeader = "Stoa-User"

func (c *calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")
	switch changes := writes[r.URL.Path]; {
	case !changes && !reads[r.URL.Path]:
		http.NotFound(w, r)
	case !isJSON(r):
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
	case changes && (token == "" || !c.o.Users()):
		http.Error(w, `{"code": 7, "message": "stoa: the page is read-only: log in first"}`, http.StatusForbidden)
	default:
		id := clientID
		if user := r.Header.Get(userHeader); token != "" && user != "" {
			id = escape.Replace(user) + "/" + clientID
		}
		in := r.Clone(r.Context())
		in.Header = http.Header{"Content-Type": r.Header["Content-Type"], clientHeader: {id}, sessionsHeader: {"all"}}
		if token != "" {
			in.Header.Set("Authorization", token)
		}
		c.o.Gateway.ServeHTTP(w, in)
	}
}

// escape is for a user's name in a client ID.
var escape = strings.NewReplacer("%", "%25", "/", "%2F")
