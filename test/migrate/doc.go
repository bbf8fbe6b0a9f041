// Package migrate runs `stoactl migrate` between real servers of etcd and stoa: a source that
// is written and compacted meanwhile, migrators that are killed at random points. The tests
// are small; the command in big, below it, is the same with a million keys.
package migrate
