// Waldump prints a server's write-ahead log, or checks it, without changing it.
//
//	waldump [--group N] [--data] [--check] DIR
//
// It exits with 1 if the log is damaged, and names the file and the offset. A
// torn tail is not damage: it prints what the next start of the server would
// cut. The log of a running server can be read, too; the frame that is being
// written may then look torn.
//
// It must not import anything of the running server but internal/wal, which
// reads the files, and internal/raftlog, which decodes records.
package main
