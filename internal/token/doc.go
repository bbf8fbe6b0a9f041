// Package token turns proofs of who a client is into tokens, and tokens into users, as
// etcd's servers do: simple tokens, which each server keeps in memory for a while, and JSON
// Web Tokens, which are signed and kept nowhere.
//
// A token names a user and the moment at which the user proved who it is. What the user may
// do isn't in it, and is asked of package auth for each request.
//
// In: the node asks for a token once a password was compared, and looks up those that come
// with requests. The package imports nothing of stoa. Its methods may be called from any
// goroutine; the time is given to them.
package token
