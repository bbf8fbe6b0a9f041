// Package disk gives a process a disk that loses power, fails, fills up, and is slow: a file
// system in user space (FUSE) for one directory, of which any program may use any part, and which this
// program spoils from outside while that program runs.
//
// Like a machine's, it keeps what is written in memory until a sync, which a kill -9 doesn't touch, and
// [Disk.Lose] does: of what wasn't synced a part is left that a generator draws, in sectors of
// 512 bytes, which may be none or all, and a name that was made, renamed or removed since its directory was synced
// may be as before. Contents are those of [vfs.Mem], so that real processes meet the disk of the
// simulation; names are stricter than there, since directories are lost, too.
//
// It has what stoa needs of a file system, and answers ENOTSUP to the rest: no links, no renames
// between directories, no file is cut but to nothing. Linux only, as root.
package disk
