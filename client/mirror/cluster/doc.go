// Package cluster lets package mirror read and write clusters, of stoa or etcd, through
// etcd's client. It decides which errors pass ([Retry]), how much is read at once, and how
// changes are buffered; what is mirrored and in which order is package mirror's.
package cluster
