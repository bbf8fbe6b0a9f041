//go:build race

package apply

import "time"

// mayTake is longer under the race detector, by what it costs.
const mayTake = 2 * time.Second
