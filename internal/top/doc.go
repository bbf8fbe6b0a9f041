// Package top is the screen of `stoactl top`: from samples of a cluster's servers to a report, and
// from a report to lines of text.
//
// A [Sample] has what the servers of a cluster answered at about one moment: the metrics of
// each, and the partitions of the leader. [Compare] makes a [Report] of two samples: rates are the
// differences of counters. [Report.Screen] lays it out for a terminal of some size, or for none.
//
// Invariants:
//
//  1. Equal inputs have equal outputs; nothing here knows a clock, a network or a terminal.
//  2. Names that clients choose can't reach a terminal as control characters.
//  3. A rate that isn't known is shown as none, and not as 0: that of the first sample, and that
//     of a counter that a restart has set back.
package top
