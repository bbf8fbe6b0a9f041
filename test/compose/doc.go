// Package compose shows that a composition of clusters (client/compose) keeps
// the guarantees of one cluster: many clients work on two and three real
// clusters, of stoa and of etcd, members are stopped and killed meanwhile, and
// the recorded history is checked for ordered sequential consistency (defined
// in package osc).
//
//	go test ./test/compose                         some seconds of each case
//	go test ./test/compose -load=2m -all           all cases (make test-compose)
//	go test ./test/compose -run Random -seed=7
//
// What is shown:
//
//  1. With syncs no history is inconsistent (random_test.go), though near members lag and
//     members fail; what an answer said of an update is what the cluster's own history
//     says.
//  2. With an order per cluster instead of one the same clients do see
//     inconsistent histories: the paper's Figure 1 (figure1_test.go), and in
//     random runs, too. So the checker and the runs detect violations.
//  3. Transactions over clusters are atomic and serializable while clients and servers are killed
//     (txn_test.go; -txn=10m), at the latency that their round trips have.
//  4. Connections that break all the time, with answers in them, change nothing of the
//     order (broken_test.go): asynchronous reads with updates behind them stay in their
//     places. With a session that doesn't tell the server what it had sent before, the
//     checker finds those that don't.
//  5. Commands over several clusters are carried out once in each, in one order, though their clients,
//     executors and servers are killed (commands_test.go).
//  6. A mirror is what its home was at its mark, and reads of mirrors keep the order, though executors
//     are killed, cut off, two at a time or stale, and targets are restored, also with many reads in flight (mirror_test.go and those beside
//     it). TestMirrorMutants -all breaks the executor and the reader in turn: the checker finds each.
//
// test/compose/bench measures what the syncs cost over distances (test/region).
package compose
