// Package golden keeps files in every format of every level (package version), and tests that
// this program reads all of them and still writes the same bytes. It is all tests.
//
// testdata has a directory for each level, written by the release that brought it; the texts
// beside the binary files say what is in them. They are never written again: SHA256SUMS has
// their checksums, and -write, which makes the files of the newest level, refuses a directory
// that is there. Only while no release has a level yet, its directory may be removed by hand,
// with its lines in SHA256SUMS, and written anew.
//
//	commands.txt    each command of the log, in its entry
//	peer.txt        each message between servers, the stream of a snapshot included
//	wal             a log of several segments with each kind of record, gzipped
//	file-*.db.gz    state files: fresh; with everything in it; with keys on their way
//	sessions.txt    the answers that the full one remembers of a session
//	quotas.txt      the commands of users, roles and quotas, from level 2 on; file-quotas has
//	                the state after them, and file-quotas-used.txt what is counted then
//	file-slots      from level 3 on, pins, and slots on their way
//	file-ending     from level 4 on, the end of a generation of groups, and file-resized, to which
//	                it comes
package golden
