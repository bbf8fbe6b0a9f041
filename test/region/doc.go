// Package region makes regions on one machine: network namespaces between which
// every packet is delayed, so that servers and clients talk over real sockets,
// with TCP as over a long distance.
//
//	region 1 (namespace)                          region 2 (namespace)
//	10.77.1.1 on stoa0  ──►  delay (this process)  ──►  stoa0 10.77.2.1
//
// Each namespace has one TUN device, to which the kernel routes the packets for
// another region; the packets wait here and are written to the other's device.
// That is what `ip netns` with `tc netem delay` would do, without the programs
// and without netem, which many kernels don't have. It needs CAP_SYS_ADMIN,
// CAP_NET_ADMIN and /dev/net/tun; without them New fails with ErrNotPermitted.
//
// Each direction between two regions is a [Link], which can be cut, delay, lose and duplicate.
//
// Promises:
//
//  1. A packet to another region arrives no earlier than the delay after it was sent, and
//     packets of one direction stay in order. None is lost unless its link says so or a queue
//     of thousands is full.
//  2. Within a region nothing is delayed.
//  3. The namespaces end with the program, or with Close: nothing has a name outside.
//
// It must not import anything of stoa's.
package region
