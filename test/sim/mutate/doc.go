// Package mutate seeds bugs into a build, to show that the simulation's checks notice
// them. The bugs stand in text files, as edits of the production code, which itself has
// none: they are compiled in by the overlay of go test -overlay, all of them at once,
// and the one that a run is to have is switched on when it starts.
//
// # Format
//
//	# what comes behind a number sign is a comment
//	mutation read-without-wait seed=8
//	file internal/replica/wait.go
//	find
//	...lines that occur once in the file
//	insert
//	...lines to put in front of them
//	end
//
// "members" behind the seed says that the bug is looked for in runs in which the members
// change, "force" that it is in runs at whose end one server is forced to be a cluster of its own, "balance" that it is in runs in which slots move at random, "resize" that it is in runs in which the
// number of partitions changes, "checks" that it is in runs in which servers compare their states, "swarm" that it is in runs that have only some of all. "replace" in the place of "insert" puts lines in the place of those found. A mutation
// may have several edits. "test=TestName" in the place of the seed says that a scripted test of package sim shows the
// bug, and that seeds may never. Lines that are inserted ask mutant.Is("read-without-wait"),
// of a package that only the overlay has.
package mutate
