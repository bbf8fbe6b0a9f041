// Package tenant limits what users ask of one server: how many watches they have open, and how
// many requests they make in a second. The limits are in the quotas ([auth.Quota]); those of
// keys and bytes are package apply's, since they are replicated and these are not.
//
// Invariants:
//
//  1. Within any second a quota admits at most twice its rate: what was saved up, one second's
//     worth, and what is added in that second. Over longer times it admits its rate.
//  2. A request that is refused takes nothing from any quota, and a request takes only from the
//     quotas that it counts for.
//  3. A quota counts a watch as long as it is open, and no longer.
//
// The package knows no clock but the one that it is given, and no requests but by their keys.
// It must not import the node, the watches or gRPC.
//
// In: [Limits.Change] with each state of users and roles; [Limits.Admit] and its like before a
// request is carried out; [Watches.Enter] and [Watches.Leave], by the watch hub.
package tenant
