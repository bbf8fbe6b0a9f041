package host

import (
	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// A request above the rate of a quota is refused when it is taken in, in its place in the
// order, and costs neither the log nor the other servers anything. But nothing remembers that
// it was refused. If its client didn't get the answer it sends the request again, on another
// stream, and it must not take effect behind a later write of its session then. So the requests
// behind a refused one are refused too, until the client says that it has received the answer.
// Those that come again may have taken effect already: they are not refused, but count; there
// are no more of them than the window of a session has.

// refusals are the requests of a session that were refused because of a rate.
type refusals struct {
	again uint64 // requests up to here may come a second time
	last  uint64 // the last refused one
	err   error
}

// limit refuses a request above the rate.
func (d *driver) limit(op *session.Op, r *session.Request) {
	limits, past := d.cfg.Limits, &d.refusals
	behind := past.last > d.answered
	if !limits.Rated() && !behind || r.Kind == stoapb.Kind_CANCEL || r.Kind == stoapb.Kind_CLOSE {
		return
	}
	u, err := d.server.State().Machine.Auth().Authorize(d.s.user)
	switch {
	case err != nil:
		return // it is refused where it takes effect
	case op.Seq <= past.again:
		limits.Owe(u, countedBy(r))
		return
	case behind:
		tenant.Repeated(past.err)
	default:
		past.err = limits.Admit(u, countedBy(r))
	}
	if past.err != nil {
		op.Done, op.Err, past.last = true, past.err, op.Seq
		d.cfg.Counts.Failed.Add(1)
	}
}

// countedBy is what a request counts by.
func countedBy(r *session.Request) tenant.Request {
	switch {
	case r.Message != nil:
		return tenant.Request{Message: r.Message}
	case r.Kind == stoapb.Kind_PUT:
		return tenant.Request{Put: r.Key}
	case r.Kind == stoapb.Kind_RANGE:
		return tenant.Request{Get: r.Key}
	}
	return tenant.Request{}
}

// oweWatch counts a watch that the session has brought with it.
func (d *driver) oweWatch(r *session.Request) {
	if limits := d.cfg.Limits; limits.Rated() {
		if u, err := d.server.State().Machine.Auth().Authorize(d.s.user); err == nil {
			limits.Owe(u, countedBy(r))
		}
	}
}
