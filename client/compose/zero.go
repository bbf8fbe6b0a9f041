package compose

import "errors"

// errZero is the error of zero values.
var errZero = errors.New("compose: a zero value, which has no clusters; compose.New makes a client of some")

// check returns errZero for a client that New has not made. The client of a
// zero Session is nil.
func (c *Client) check() error {
	if c == nil || c.core == nil {
		return errZero
	}
	return nil
}
