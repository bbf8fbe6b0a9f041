//go:build !race

package main

const mayHold = maxPerByte
