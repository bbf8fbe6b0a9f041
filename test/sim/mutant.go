package sim

// seeded is whether this build has the mutations of the production code: only one
// with the overlay of package mutate does, in which another file is in this one's place.
const seeded = false

// switchOn puts one of them on, for all runs of this process to come.
func switchOn(string) {}
