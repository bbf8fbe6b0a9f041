//go:build !race

package apply

import "time"

// mayTake is the processor time that a request may take on two machines, with what the
// test itself does: a few times what a call at all default limits takes, with all events
// that it may lead to.
const mayTake = 200 * time.Millisecond
