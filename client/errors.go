package client

import "github.com/stoa-kv/stoa/client/internal/engine"

// Errors of sessions. What a server answers is the same error that etcd's client
// returns for it.
var (
	// ErrSessionExpired: the session's lease is gone, and its ephemeral keys with
	// it; or no member was heard of for longer than its TTL. What was not answered may
	// have taken effect or not.
	ErrSessionExpired = engine.ErrSessionExpired
	// ErrSessionClosed: Close was called, of the session or its client.
	ErrSessionClosed = engine.ErrSessionClosed
	// ErrSessionTaken: another client has gone on with the session.
	ErrSessionTaken = engine.ErrSessionTaken
	// ErrOvertaken: a read, or the opening of a watch, was on its way when the
	// connection broke. Updates that the session had sent behind it have taken effect,
	// so it can't be answered in its place any more. Nothing has happened; a new read
	// shows those updates. Only what is sent without waiting fails so. Its gRPC code is
	// Unavailable.
	ErrOvertaken = engine.ErrOvertaken
	// ErrRefused: no member accepts connections, or their names can't be resolved.
	// Only sessions with WithRefusal end for that.
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
	// ErrNoSession: there is no session to do it through. The zero Session has none; nor
	// has a key that is put with Ephemeral through a Client itself.
	ErrNoSession = engine.ErrNoSession
)
