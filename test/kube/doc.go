// Package kube runs a kube-apiserver on stoa and applies the manifests in deploy/kubernetes to it,
// with kubectl, which has to be installed. The module apiserver below pins the kube-apiserver, which
// is built from the Go proxy.
//
//	make test-kube
package kube
