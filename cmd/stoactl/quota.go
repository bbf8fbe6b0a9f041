package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

func (a *app) quotaCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "quota <subcommand>", Short: "Limits of roles and prefixes (stoa only)"}
	cmd.AddCommand(a.quotaSetCommand(), a.quotaRemoveCommand(),
		a.quotaShowCommand("get", "Shows the limits of a role or a prefix, and what is used of them", true),
		a.quotaShowCommand("list", "Shows all limits, and what is used of them", false))
	return cmd
}

// limited are the flags that name a quota.
type limited struct{ role, prefix string }

func (l *limited) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.role, "role", "", "the quota of the keys that this role may write, and of what its users ask")
	cmd.Flags().StringVar(&l.prefix, "prefix", "", "the quota of the keys with this prefix, and of what is asked of them")
}

func (l *limited) check(command string) error {
	if (l.role == "") == (l.prefix == "") {
		return badArgs("quota %s command requires --role or --prefix", command)
	}
	return nil
}

func (l *limited) String() string {
	if l.role != "" {
		return "role " + l.role
	}
	return "prefix " + l.prefix
}

func (a *app) quotaSetCommand() *cobra.Command {
	var l limited
	var q stoapb.Quota
	cmd := &cobra.Command{
		Use: "set", Short: "Sets the limits of a role or a prefix, in the place of those that it has", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := l.check("set"); err != nil {
				return err
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				q.Role, q.Prefix = l.role, []byte(l.prefix)
				r, err := stoapb.NewQuotasClient(c.ActiveConnection()).Set(ctx, &stoapb.SetQuotaRequest{Quota: &q})
				if err != nil {
					return err
				}
				return a.show(quotaChanged(r, "Quota of %v set", &l))
			})
		},
	}
	l.declare(cmd)
	cmd.Flags().Int64Var(&q.MaxBytes, "max-bytes", 0, "how many bytes the keys and their values may have (0: any)")
	cmd.Flags().Int64Var(&q.MaxKeys, "max-keys", 0, "how many keys there may be (0: any)")
	cmd.Flags().Int64Var(&q.MaxWatchers, "max-watchers", 0, "how many watches may be open on each member (0: any)")
	cmd.Flags().Int64Var(&q.MaxRate, "max-rate", 0, "how many requests may come in a second on each member (0: any)")
	return cmd
}

func (a *app) quotaRemoveCommand() *cobra.Command {
	var l limited
	cmd := &cobra.Command{
		Use: "remove", Short: "Removes the limits of a role or a prefix", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := l.check("remove"); err != nil {
				return err
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				req := &stoapb.RemoveQuotaRequest{Role: l.role, Prefix: []byte(l.prefix)}
				r, err := stoapb.NewQuotasClient(c.ActiveConnection()).Remove(ctx, req)
				if err != nil {
					return err
				}
				return a.show(quotaChanged(r, "Quota of %v removed", &l))
			})
		},
	}
	l.declare(cmd)
	return cmd
}

func quotaChanged(json any, format string, l *limited) view {
	text := func(p *printer) { p.printf(format+"\n", l) }
	return view{json: json, simple: text, fields: text}
}

func (a *app) quotaShowCommand(name, short string, one bool) *cobra.Command {
	var l limited
	cmd := &cobra.Command{
		Use: name, Short: short, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if one {
				if err := l.check(name); err != nil {
					return err
				}
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := stoapb.NewQuotasClient(c.ActiveConnection()).List(ctx, &stoapb.ListQuotasRequest{})
				if err != nil {
					return err
				}
				if one {
					if r.Quotas = only(r.Quotas, &l); len(r.Quotas) == 0 {
						return fmt.Errorf("there is no quota of %v", &l)
					}
				}
				return a.show(quotaView(r))
			})
		},
	}
	if one {
		l.declare(cmd)
	}
	return cmd
}

func only(list []*stoapb.QuotaUsage, l *limited) []*stoapb.QuotaUsage {
	for _, u := range list {
		if u.Quota.GetRole() == l.role && string(u.Quota.GetPrefix()) == l.prefix {
			return []*stoapb.QuotaUsage{u}
		}
	}
	return nil
}

func quotaView(r *stoapb.ListQuotasResponse) view {
	return view{
		json: r,
		fields: func(p *printer) {
			p.line(`"Enforced" :`, r.Enforced)
			for _, u := range r.Quotas {
				p.line()
				p.printf("\"Role\" : %q\n\"Prefix\" : %q\n", u.Quota.GetRole(), u.Quota.GetPrefix())
				p.line(`"MaxBytes" :`, u.Quota.GetMaxBytes())
				p.line(`"MaxKeys" :`, u.Quota.GetMaxKeys())
				p.line(`"MaxWatchers" :`, u.Quota.GetMaxWatchers())
				p.line(`"MaxRate" :`, u.Quota.GetMaxRate())
				p.line(`"Bytes" :`, u.Bytes)
				p.line(`"Keys" :`, u.Keys)
				p.line(`"Watchers" :`, u.Watchers)
				p.line(`"Requests" :`, u.Requests)
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, u := range r.Quotas {
				kind, name := "role", u.Quota.GetRole()
				if name == "" {
					kind, name = "prefix", fmt.Sprintf("%q", u.Quota.GetPrefix())
				}
				rows = append(rows, []string{
					kind, name, of(u.Bytes, u.Quota.GetMaxBytes(), r.Enforced), of(u.Keys, u.Quota.GetMaxKeys(), r.Enforced),
					ofLimit(u.Watchers, u.Quota.GetMaxWatchers(), r.Enforced), ofLimit(u.Requests, u.Quota.GetMaxRate(), r.Enforced),
				})
			}
			return []string{"kind", "tenant", "bytes", "keys", "watchers here", "requests/s here"}, rows
		},
	}
}

// of is what is used of a limit.
func of(used, limit int64, enforced bool) string {
	text := "any"
	if limit > 0 {
		text = fmt.Sprint(limit)
	}
	if !enforced {
		return "- of " + text
	}
	return fmt.Sprintf("%d of %s", used, text)
}

// ofLimit is of for something that is counted only where there is a limit.
func ofLimit(used, limit int64, enforced bool) string {
	if limit == 0 {
		return "any"
	}
	return of(used, limit, enforced)
}
