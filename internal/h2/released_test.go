//go:build !race

package h2_test

// stacksAsReleased is false in builds whose stacks differ from those of a released server.
const stacksAsReleased = true
