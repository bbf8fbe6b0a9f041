package token

import (
	"sync"
	"sync/atomic"
	"time"
)

// verified are tokens whose signature was found right. A token that is valid stays so until
// it expires. Only holders of the key can add to them, and they are bounded.
type verified struct {
	claims sync.Map // a token's text to its Claims
	count  atomic.Int64
}

// Together they take 16 MiB at most, and a client uses one of them.
const (
	maxVerified      = 4096
	maxVerifiedBytes = 4096 // of one token
)

func (v *verified) find(text string, now time.Time) (c Claims, ok bool) {
	found, ok := v.claims.Load(text)
	if !ok {
		return c, false
	}
	c = found.(Claims)
	return c, c.Expires.IsZero() || now.Before(c.Expires)
}

// add forgets all others when there are too many.
func (v *verified) add(text string, c Claims) {
	if len(text) > maxVerifiedBytes {
		return
	}
	if _, there := v.claims.LoadOrStore(text, c); there || v.count.Add(1) <= maxVerified {
		return
	}
	v.claims.Clear()
	v.count.Store(0)
}
