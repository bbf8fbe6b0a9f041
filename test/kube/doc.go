// Package kube runs Kubernetes' control plane on three servers of stoa with two partitions: kube-apiserver,
// kube-controller-manager and kube-scheduler, connected to the servers and through a sidecar, while a server is killed
// and the kube-apiserver is; and it applies the manifests in deploy/kubernetes with kubectl, which has to be
// installed. There are no kubelets: pods are bound to a node, and run nowhere. The module apiserver below
// pins the three programs, which are built from the Go proxy.
//
//	make test-kube
package kube
