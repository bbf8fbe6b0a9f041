// Package stoactl runs stoactl and the real etcdctl side by side: the same commands, right
// and wrong ones, each on a server of its own, in the same order. Where both have a
// command, their exit statuses and their outputs are the same, or the row says why not.
package stoactl
