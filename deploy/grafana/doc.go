// Grafana writes stoa's Grafana dashboards: they are defined here (cluster.go, partitions.go,
// extensions.go, sidecars.go) and rendered into the .json files beside, which Grafana imports.
//
//	make dashboards
//
// Each dashboard has two variables: the data source, and the job that scrapes the cluster's
// servers. The package imports nothing of stoa's: it knows the servers by their metrics. That these
// exist is what test/dashboards tests, on a running cluster.
package main
