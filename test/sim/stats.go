package sim

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Stats counts the events of a run.
type Stats struct {
	Servers, Partitions         int
	Requests, Answered, Unknown int
	Revisions, MultiPartition   int
	Moves, Steps, Rerouted      int // transits begun and ended, their steps, and requests whose keys had moved
	Wishes                      int // of the mad balancer, that took effect
	Resizes                     int // of the number of partitions, asked for and answered
	Calls                       int // requests that concern extensions
	Increments, Queued          int // of them, on the counter and the queue
	Crashes, Faults, Snapshots  int
	Expired, LeaseSteps         int // leases; steps of ends that take several, on all servers
	Backups, Stale              int // taken; of them of an earlier state
	Defragmented                int // files
	Apart, Met                  int // times that partitions weren't together, and that they met for a backup
	Looks                       int // at what is left of a lease
	MemberChanges               int // that have settled
	Strikes                     int // of the removals among them, after which servers were lost
	Lost                        int // revisions in partitions that survivors never had
	Restored                    int // clusters that have begun with a backup, in the place of one that was lost
	LivedOn                     int // clusters that have grown from a survivor, and have had troubles again
	Flips, Fenced, Healed       int // of servers' states; servers that a verdict fenced, and that serve again
	Splits                      int // times that writes were refused for all, since no majority agreed
	VersionChanges              int // of the cluster, and announced releases
	UserEvents                  int // to watches of users
	Revokes                     int // of the rights of a user
	Allowed, Forbidden          int // requests of users with few rights, answered and refused
	Passwords, Successors       int // of these users: passwords that were set, and users in the place of others
	FewHandled, Unhandled       int // events on which they have run a handler, and for which its user lacked a right
	Unfit                       int // events for whose handler there was no space
	Forged                      int // writes to sessions of others
	WatchesForbidden            int // of them, refused and canceled
	Intrusions                  int // attempts to take up sessions of others
	Quotas, OverQuota           int // set or removed; requests that exceeded one
	OverRate                    int // or its rate
	WatchEvents, Progress       int
	Notices                     int // of extensions, that watches got
	Waits, Hidden               int // watches that an extension has handled; events that one may have hidden
	InSession, Pipelined        int // requests of sessions; writes sent while the one before was under way
	Resumed, Resent, Lagging    int // streams opened; requests sent again; reads that waited for the server
	Overtaken                   int // reads sent again in vain, behind writes of their session
	PorcupineOperations         int
	Undecided                   int // searches of porcupine's that took too long
	Events                      int
	Simulated                   time.Duration
}

// add sums up.
func (s *Stats) add(o Stats) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

func (s Stats) String() string {
	var parts []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		parts = append(parts, fmt.Sprintf("%s %v", v.Type().Field(i).Name, v.Field(i)))
	}
	return strings.Join(parts, ", ")
}
