//go:build race

package main

// mayHold is wider under the race detector, whose allocations are larger.
const mayHold = 1.5
