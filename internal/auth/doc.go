// Package auth is the state of users, roles and their permissions, and the decision whether
// a user may do something. It behaves as etcd's auth store does.
//
// A [State] is immutable. [State.Change] returns the next one, and [State.Stored] the form
// in which it is kept in etcd's buckets auth, authUsers and authRoles.
//
// Invariants:
//
//  1. A state is a function of the state before it and of the request: no clock, no random
//     number, no order of a map reaches it. Passwords arrive as hashes.
//  2. A change that has an effect raises the revision by one, but for enabling, as in etcd.
//     So the revision at which a user was added names that user for ever, and the one at
//     which its password was set names the user with this password ([User.ID],
//     [User.Credential]); a user that was deleted and added again has others.
//  3. A decision needs nothing beside the state: the permissions of all roles of a user are
//     merged when they change, into spans that are in order and don't touch.
//
// In: package apply changes the state at a rendezvous of all partitions, and asks it for
// each command and each read, under the locks of the stores. Errors are faults.
//
// Tokens are package token's, hashes of passwords the node's.
package auth
