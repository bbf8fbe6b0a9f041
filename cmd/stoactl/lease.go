package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lease <subcommand>", Short: "Lease related commands"}
	cmd.AddCommand(a.leaseGrantCommand(), a.leaseRevokeCommand(), a.leaseTimeToLiveCommand(),
		a.leaseListCommand(), a.leaseKeepAliveCommand())
	return cmd
}

func (a *app) leaseGrantCommand() *cobra.Command {
	return &cobra.Command{
		Use: "grant <ttl>", Short: "Creates leases",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease grant command needs TTL argument")
			}
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return badArgs("bad TTL (%w)", err)
			}
			return a.withStore(func(ctx context.Context, s store) error {
				r, err := s.Grant(ctx, ttl)
				if err != nil {
					return fmt.Errorf("failed to grant lease (%w)", err)
				}
				return a.show(view{
					json:   r,
					simple: func(p *printer) { p.printf("lease %016x granted with TTL(%ds)\n", r.ID, r.TTL) },
					fields: func(p *printer) {
						p.header(r.ResponseHeader)
						p.lease(r.ID)
						p.line(`"TTL" :`, r.TTL)
					},
				})
			})
		},
	}
}

// onLease is a subcommand's work on the lease that its only argument names.
func (a *app) onLease(name string, args []string, f func(context.Context, store, clientv3.LeaseID) error) error {
	if len(args) != 1 {
		return badArgs("lease %s command needs lease ID as argument", name)
	}
	id, err := leaseNamed(args[0])
	if err != nil {
		return err
	}
	return a.withStore(func(ctx context.Context, s store) error { return f(ctx, s, clientv3.LeaseID(id)) })
}

func (a *app) leaseRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke <leaseID>", Short: "Revokes leases",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onLease("revoke", args, func(ctx context.Context, s store, id clientv3.LeaseID) error {
				r, err := s.Revoke(ctx, id)
				if err != nil {
					return fmt.Errorf("failed to revoke lease (%w)", err)
				}
				return a.show(view{
					json:   r,
					simple: func(p *printer) { p.printf("lease %016x revoked\n", id) },
					fields: func(p *printer) { p.header(r.Header) },
				})
			})
		},
	}
}

func (a *app) leaseTimeToLiveCommand() *cobra.Command {
	var keys bool
	cmd := &cobra.Command{
		Use: "timetolive <leaseID> [options]", Short: "Get lease information",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onLease("timetolive", args, func(ctx context.Context, s store, id clientv3.LeaseID) error {
				var opts []clientv3.LeaseOption
				if keys {
					opts = append(opts, clientv3.WithAttachedKeys())
				}
				r, err := s.TimeToLive(ctx, id, opts...)
				if err != nil {
					return badConnection(err)
				}
				return a.show(timeToLiveView(r, keys))
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "Get keys attached to this lease")
	return cmd
}

func timeToLiveView(r *clientv3.LeaseTimeToLiveResponse, keys bool) view {
	return view{
		json: r,
		simple: func(p *printer) {
			if r.GrantedTTL == 0 && r.TTL == -1 {
				p.printf("lease %016x already expired\n", r.ID)
				return
			}
			p.printf("lease %016x granted with TTL(%ds), remaining(%ds)", r.ID, r.GrantedTTL, r.TTL)
			if keys {
				p.printf(", attached keys(%s)", r.Keys)
			}
			p.line()
		},
		fields: func(p *printer) {
			p.header(r.ResponseHeader)
			p.lease(r.ID)
			p.line(`"TTL" :`, r.TTL)
			p.line(`"GrantedTTL" :`, r.GrantedTTL)
			for _, k := range r.Keys {
				p.printf("\"Key\" : %q\n", k)
			}
		},
	}
}

func (a *app) leaseListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all active leases", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withStore(func(ctx context.Context, s store) error {
				r, err := s.Leases(ctx)
				if err != nil {
					return badConnection(err)
				}
				return a.show(view{
					json: r,
					simple: func(p *printer) {
						p.printf("found %d leases\n", len(r.Leases))
						for _, l := range r.Leases {
							p.printf("%016x\n", l.ID)
						}
					},
					fields: func(p *printer) {
						p.header(r.ResponseHeader)
						for _, l := range r.Leases {
							p.lease(l.ID)
						}
					},
				})
			})
		},
	}
}

func (a *app) leaseKeepAliveCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "keep-alive [options] <leaseID>", Short: "Keeps leases alive (renew)",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onLease("keep-alive", args, func(ctx context.Context, s store, id clientv3.LeaseID) error {
				if !once {
					return a.keepAlive(s, id)
				}
				r, err := s.KeepAliveOnce(ctx, id)
				if err != nil {
					return badConnection(err)
				}
				return a.show(keepAliveView(r))
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "Resets the keep-alive time to its original value and exits immediately")
	return cmd
}

// keepAlive renews a lease until it ends. Etcd's client also stops when it gets
// no answer for too long, so a server is asked which of the two it is.
func (a *app) keepAlive(s store, id clientv3.LeaseID) error {
	for {
		renewals, err := s.KeepAlive(context.Background(), id)
		if err != nil {
			return badConnection(err)
		}
		for r := range renewals {
			if err := a.show(keepAliveView(r)); err != nil {
				return err
			}
		}
		left, err := a.remaining(s, id)
		if err != nil {
			return badConnection(fmt.Errorf("whether the lease is still there is unknown: %w", explained(s, err)))
		}
		if left < 0 {
			break
		}
	}
	if a.o.form == "simple" {
		fmt.Fprintf(a.out, "lease %016x expired or revoked.\n", id)
	}
	return nil
}

// remaining is how many seconds a lease has left, -1 if it is gone.
func (a *app) remaining(s store, id clientv3.LeaseID) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	r, err := s.TimeToLive(ctx, id)
	if err != nil {
		return 0, err
	}
	return r.TTL, nil
}

func keepAliveView(r *clientv3.LeaseKeepAliveResponse) view {
	return view{
		json:   r,
		simple: func(p *printer) { p.printf("lease %016x keepalived with TTL(%d)\n", r.ID, r.TTL) },
		fields: func(p *printer) {
			p.header(r.ResponseHeader)
			p.lease(r.ID)
			p.line(`"TTL" :`, r.TTL)
		},
	}
}

func (p *printer) lease(id clientv3.LeaseID) {
	if p.hex {
		p.printf("\"ID\" : %016x\n", int64(id))
		return
	}
	p.line(`"ID" :`, int64(id))
}
