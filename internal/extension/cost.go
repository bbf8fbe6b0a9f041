package extension

import "github.com/stoa-kv/stoa/internal/throttle"

// Work is a kind of request, by what an extension does for it.
type Work uint8

// The kinds: a call, and writes whose changes wake event handlers.
const (
	Call Work = iota
	OnPut
	OnDelete
	OnDeleteRange
	OnTxn
	works
)

// Costs is what an extension has cost on this server, by kind of request, with all that
// followed from each. It is no part of the state: apply writes it, and the servers' throttle
// reads it.
type Costs [works]throttle.History
