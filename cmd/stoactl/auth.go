package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func (a *app) authCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "auth <subcommand>", Short: "Enables or disables authentication"}
	cmd.AddCommand(
		&cobra.Command{Use: "enable", Short: "Enables authentication", Args: noArgs, RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				if err := enableAuth(ctx, c); err != nil {
					return err
				}
				(&printer{a.out, a.o.hex}).line("Authentication Enabled")
				return nil
			})
		}},
		&cobra.Command{Use: "disable", Short: "Disables authentication", Args: noArgs, RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				if _, err := c.AuthDisable(ctx); err != nil {
					return err
				}
				(&printer{a.out, a.o.hex}).line("Authentication Disabled")
				return nil
			})
		}},
		&cobra.Command{Use: "status", Short: "Returns authentication status", Args: noArgs, RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.AuthStatus(ctx)
				if err != nil {
					return err
				}
				show := func(p *printer) {
					p.line("Authentication Status:", r.Enabled)
					p.line("AuthRevision:", r.AuthRevision)
				}
				return a.show(view{json: r, protobuf: (*pb.AuthStatusResponse)(r), simple: show, fields: show})
			})
		}},
	)
	return cmd
}

// enableAuth gives the user root the role root if it hasn't it, as etcdctl does.
func enableAuth(ctx context.Context, c *clientv3.Client) error {
	_, err := c.AuthEnable(ctx)
	if !errors.Is(err, rpctypes.ErrRootRoleNotExist) {
		return err
	}
	if _, err := c.RoleAdd(ctx, "root"); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return err
	}
	if _, err := c.UserGrantRole(ctx, "root", "root"); err != nil {
		return err
	}
	_, err = c.AuthEnable(ctx)
	return err
}

// changed is the answer to a change of users or roles: a line, or the header.
func changed(json any, h *pb.ResponseHeader, format string, args ...any) view {
	return view{
		json:   json,
		simple: func(p *printer) { p.printf(format+"\n", args...) },
		fields: func(p *printer) { p.header(h) },
	}
}

// names are a list of users, or of roles.
func names(json any, h *pb.ResponseHeader, label string, list []string) view {
	return view{
		json: json,
		simple: func(p *printer) {
			for _, n := range list {
				p.line(n)
			}
		},
		fields: func(p *printer) {
			p.header(h)
			p.printf("%q :", label)
			for _, n := range list {
				p.printf(" %q", n)
			}
			p.line()
		},
	}
}

// onNames is a subcommand whose arguments are so many names.
func (a *app) onNames(use, short, wants string, count int, do func(ctx context.Context, c *clientv3.Client, args []string) (view, error)) *cobra.Command {
	return withNames(use, short, wants, count, func(args []string) error {
		return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
			v, err := do(ctx, c, args)
			if err != nil {
				return err
			}
			return a.show(v)
		})
	})
}

// withNames is onNames for a subcommand that does something before it connects.
func withNames(use, short, wants string, count int, do func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != count {
				return badArgs("%s", wants)
			}
			return do(args)
		},
	}
}
