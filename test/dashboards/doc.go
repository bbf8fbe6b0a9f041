// Package dashboards tests the rules in deploy/prometheus and the dashboards in deploy/grafana, and
// beside them the rules and dashboards that were made for etcd (its mixin, from the Go proxy):
//
//   - all expressions parse, by Prometheus' own parser;
//   - each metric that they name is exported by a running cluster of three under load;
//   - alerts fire by promtool, on series that are made up (stoa.test.yml), and on those of a cluster
//     that has the cause: a full quota, a member down, no quorum.
//
// It is a module of its own, so that stoa's doesn't depend on Prometheus and jsonnet.
//
//	make test-dashboards
package dashboards
