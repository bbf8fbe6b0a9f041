package compose

import "errors"

// errZero is what zero values fail with.
var errZero = errors.New("compose: a zero value, which has no clusters; compose.New makes a client of some")

// check tells a zero client from one that New has made. The client of a zero Session
// is nil.
func (c *Client) check() error {
	if c == nil || c.core == nil {
		return errZero
	}
	return nil
}
