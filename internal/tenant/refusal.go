package tenant

import (
	"errors"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/fault"
)

// refusal is the error of a limit, which is made once: a tenant that goes on trying should
// cost little.
type refusal struct {
	detail atomic.Pointer[fault.Detail]
	times  atomic.Int64
}

func (r *refusal) Error() string { return r.detail.Load().Error() }
func (r *refusal) Unwrap() error { return r.detail.Load() }

// refuse is the refusal of one request more.
func (r *refusal) refuse() error {
	r.times.Add(1)
	return r
}

// Repeated notes that a request has been refused with an error of this package that another
// request was refused with.
func Repeated(err error) {
	var r *refusal
	if errors.As(err, &r) {
		r.times.Add(1)
	}
}
