//go:build race

package h2_test

// stacksAsReleased: the race detector makes stacks larger.
const stacksAsReleased = false
