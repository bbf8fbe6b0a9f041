//go:build race

package h2_test

// The race detector makes stacks larger.
func init() { stacksAsReleased = false }
