// Command forever runs seeds of the simulation (package sim) on all cores until it is stopped: each kind of
// run in turn, from a first seed that is drawn. Seeds that fail are noted in a file, the corpus, with what they
// found and the commit, and what they did is kept beside it; the next time, the corpus comes first.
//
// Each core has a process of its own, because a run replaces sources of the process. In: the flags. Out:
// the corpus, and seeds per hour by kind.
package main
