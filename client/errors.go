package client

import "github.com/stoa-kv/stoa/client/internal/engine"

// Errors of sessions. Errors of a server are those that etcd's client returns
// for them.
var (
	// ErrSessionExpired: the session's lease is gone, and its ephemeral keys
	// with it; or no member answered for longer than its TTL. Unanswered
	// requests may have taken effect or not.
	ErrSessionExpired = engine.ErrSessionExpired
	// ErrSessionClosed: Close was called, of the session or its client.
	ErrSessionClosed = engine.ErrSessionClosed
	// ErrSessionTaken: another client has resumed the session.
	ErrSessionTaken = engine.ErrSessionTaken
	// ErrOvertaken: a read, or the opening of a watch, was in flight when the
	// connection broke. Updates that the session had sent behind it have taken
	// effect, so it can't be answered in its place any more. The read had no
	// effect; a new read shows those updates. Only asynchronous requests fail
	// with it. Its gRPC code is Unavailable.
	ErrOvertaken = engine.ErrOvertaken
	// ErrRefused: no member accepts connections, or their names can't be
	// resolved. Only sessions with WithRefusal end with it.
	ErrRefused = engine.ErrRefused
	// ErrNotSent is joined with the reason for which a session has ended, for a
	// request that was never sent: it has not taken effect and never will.
	ErrNotSent = engine.ErrNotSent
	// ErrRequestTooLarge: the request has more than Config.MaxRequestBytes. It was
	// not sent.
	ErrRequestTooLarge = engine.ErrRequestTooLarge
	// ErrWatchClosed: the watch was closed, or all watches of a feed have ended, and
	// there is nothing more to read.
	ErrWatchClosed = engine.ErrWatchClosed
	// ErrNoSession: there is no session for the call. The zero Session has
	// none; nor has a key that is put with Ephemeral through a Client itself.
	ErrNoSession = engine.ErrNoSession
)
