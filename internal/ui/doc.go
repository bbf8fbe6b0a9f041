// Package ui is the page in a browser, below /ui/: members and partitions, keys, extensions,
// sessions and leases of the cluster, as one server sees them.
//
// The page is static files, embedded into the program. Its script asks the JSON gateway, below
// /ui/v3/, and /metrics of the same port, and no other host.
//
// Invariants:
//
//  1. The page has the rights of the token that its user got by logging in, and those of a client
//     without a user before. The token stays in the memory of the script: there are no cookies,
//     so a foreign page can't send requests with somebody's rights.
//  2. Only the methods that are listed here are called; those that change something only with a
//     token, and only while authentication is enabled.
//  3. No request calls a handler of an extension: each has a client ID of its own, which has
//     acknowledged none. Looking at a key never changes anything.
//  4. The files refer to no other host, and have no inline scripts or styles. The
//     Content-Security-Policy allows neither.
//
// The package must not import any other package of stoa.
//
// In: an HTTP server calls the handler. Out: requests to the gateway's handler.
package ui
