package host

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// deed is a request and its answer.
type deed struct {
	kind     string
	n        int64 // in the order in which all things happened
	fork     int64
	key, end string
	value    string
	other    string // the second key of a transaction
	absent   bool   // the first has to be
	synced   bool
	sel      selection // of a read
	script   *script   // of a transaction with one
	held     *composedLease
	by       *compose.Client // nil: the app's
	left     bool            // the caller's context may have ended

	begun, ended int64 // ns
	heard        int64 // number of the answer; 0: none yet
	err          error
	rev          int64
	kvs          []*mvccpb.KeyValue // that were read, or deleted
	more         bool
	count        int64
	deleted      int64
	says         bool            // of a transaction: which way it went
	answer       *pb.TxnResponse // of one with a script

	// Found by check: its revision, and those of a transaction over clusters.
	effect int64
	both   [2]int64
}

func (d *deed) String() string {
	end := ""
	if d.end != "" {
		end = fmt.Sprintf("..%q", d.end)
	}
	if d.sel != (selection{}) {
		end += fmt.Sprintf(" (%v)", d.sel)
	}
	if d.script != nil {
		end += fmt.Sprintf(" %v", d.script)
	}
	return fmt.Sprintf("client %d: %s %q%s %s %s, [%v, %v]: at %d, %d keys, %v", d.fork, d.kind, d.key, end, d.other, d.value, time.Duration(d.begun), time.Duration(d.ended), d.rev, len(d.kvs), d.err)
}

// compare orders by what came first.
func (d *deed) compare(o *deed) int { return cmp.Compare(d.n, o.n) }

// writes tells whether it is an update.
func (d *deed) writes() bool {
	return d.kind == "put" || d.kind == "txn" || d.kind == "script" && d.script.writes() || d.kind == "delete" || d.kind == "across" || d.kind == "refused"
}

// unknown tells whether it may have taken effect.
func (d *deed) unknown() bool {
	var of *compose.ClusterError
	return d.heard == 0 || errors.As(d.err, &of) && of.Unknown
}

// opened is what is told of a watch when it is open.
type opened interface {
	Begin() int64 // its events are behind this revision
	Cluster() string
}

// composedWatch is a watch of a feed, in one cluster.
type composedWatch struct {
	opened
	n     int64 // when it was open
	fork  int64
	asked int64 // start revision; 0: none
	stretch
}

func (v *composedWatch) String() string {
	return fmt.Sprintf("watch of client %d from %q to %q, behind %d", v.fork, v.from, v.to, v.Begin())
}

// composedNote is a notification that was taken.
type composedNote struct {
	compose.Notification
	n     int64
	fork  int64
	watch *composedWatch
}
