// Package extension is the extension manager: the extensions that clients register under
// /em/, the requests and changes that concern them, and the operations of their handlers
// on keys.
//
// The model is that of Extensible Distributed Coordination (Distler et al.,
// EuroSys 2015, "EZK"): an operation extension is run instead of a request that
// matches one of its subscriptions (§3.3), an event extension after a change that
// matches; both see the keys through a proxy of the store (§4.1.2) and are written
// in a subset of Lua ([script]).
//
// Invariants:
//
//  1. (I6) A call is a function of the extension's source, the limits, the request and
//     the keys that it reads; it has access to nothing else.
//  2. A call's writes are collected ([Outcome]) and carried out by the caller, all
//     of them or, after an error, none.
//  3. An [Extension] and a [Registry] never change. A cluster's registry is a
//     function of the keys under /em/, so a restart or a snapshot needs nothing
//     else to rebuild it (§3.8).
//  4. A handler touches only keys in its extension's scope, and none under /em/.
//
// Source in: [Compile]. Requests in: [Registry.Operation], [Registry.Events] find
// the extensions concerned, [Extension.Operation], [Extension.Event] run them. Out: an
// Outcome for internal/apply. The package doesn't depend on the store: it reads through
// [State].
package extension
