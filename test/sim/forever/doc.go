// Command forever runs seeds of the simulation (package sim) on all cores until it is stopped: each kind of
// run in turn, from a first seed that is drawn. Seeds that fail are noted in a file, the corpus, with what they
// found and the commit, and what they did is kept beside it; the next time, the corpus comes first.
//
// Every fourth block of each kind is of runs that a guide chooses: it knows which steps of the servers' code (package
// cover) few runs have taken, and goes on from there with other chances. What it knows is kept beside the corpus.
//
// Each core has a process of its own, because a run replaces sources of the process. In: the flags. Out:
// the corpus, and seeds per hour by kind.
package main
