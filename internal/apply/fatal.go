package apply

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// A condition of this server alone, such as a disk that can't be read, must not become
// part of the state, of an answer or of a session's table: the other replicas wouldn't
// have it (I6). It ends the server instead, before the command's first write.

// fatal ends the server from within the execution of an entry. It does not return, and
// the stores stay locked: no reader and no cut sees an entry of which a part is executed.
func (x *execution) fatal(err error) {
	x.m.Fatal(err)
	runtime.Goexit()
}

// unread handles a failure to read values from the history. In the execution of the log
// it ends the server at this entry; a read outside of it gets the error, if the server hasn't
// ended by then. A closed file does not end the server: another has replaced it.
func (x *execution) unread(err error) error {
	if !x.readOnly {
		x.fatal(fmt.Errorf("apply a command in partitions %v at revision %d: %w", x.parts, x.rev, err))
	}
	if !errors.Is(err, store.ErrClosed) {
		x.m.Fatal(fmt.Errorf("evaluate a read of partitions %v at revision %d: %w", x.parts, x.current(), err))
	}
	return fmt.Errorf("%w: %w", fault.Internal, err)
}

// checkStamp enforces invariant 3. Stamps increase along each log, and checksums protect
// the log: an entry with a stamp that has been given out already comes from a
// bug, or from a log that has diverged from those of the other servers. Any revision that
// this server would choose instead would make the replicas differ for good.
func (x *execution) checkStamp(e *command.Entry) {
	last := x.lastRev()
	if e.Stamp == 0 || e.Stamp > last {
		return
	}
	p := x.parts.First()
	index, _ := x.m.Stores[p].Applied()
	x.fatal(fmt.Errorf("the log contradicts what has been applied from it: the entry behind index %d of partition %d, for partitions %v, "+
		"is stamped %d, but revision %d has been applied; the log's checksums are right, so this is a bug of stoa "+
		"or this server's log has diverged from the cluster's; keep its data directory for inspection and don't start it again with it",
		index, p, x.parts, e.Stamp, last))
}
