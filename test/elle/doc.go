// Package elle checks histories of transactions that append to lists and read them, for strict
// serializability, in the way of Kingsbury and Alvaro: Elle: Inferring Isolation Anomalies from
// Experimental Observations (VLDB 2020).
//
// Each appended value is unique in its key, so a read of a list tells which transactions came
// before it and in which order (the paper's "traceability" and "recoverability", §3). From all
// reads of a key follows the order of its versions, and from that a graph of transactions:
//
//	order   T2 appended behind what T1 appended       (ww)
//	from    T2 read what T1 appended last             (wr)
//	before  T2 appended what T1 did not yet read      (rw)
//	time    T1 was answered before T2 was sent
//
// A history that is strictly serializable has no cycle in it. [Check] also finds reads that no
// order explains: of values that nobody or only a failed transaction appended, of half a
// transaction, of one list in two orders, of less than the transaction itself appended; and
// acknowledged appends that a final read lacks.
//
// A transaction without an answer may have happened or not: it counts from the moment at which
// a read shows it, and has no time.
package elle
