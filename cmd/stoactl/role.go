package main

import (
	"context"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) roleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "role <subcommand>", Short: "Role related commands"}
	cmd.AddCommand(
		a.onNames("add <role name>", "Adds a new role", "role add command requires role name as its argument", 1,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.RoleAdd(ctx, args[0])
				if err != nil {
					return view{}, err
				}
				return changed(r, r.Header, "Role %s created", args[0]), nil
			}),
		a.onNames("delete <role name>", "Deletes a role", "role delete command requires role name as its argument", 1,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.RoleDelete(ctx, args[0])
				if err != nil {
					return view{}, err
				}
				return changed(r, r.Header, "Role %s deleted", args[0]), nil
			}),
		a.onNames("list", "Lists all roles", "role list command requires no arguments", 0,
			func(ctx context.Context, c *clientv3.Client, _ []string) (view, error) {
				r, err := c.RoleList(ctx)
				if err != nil {
					return view{}, err
				}
				return names(r, r.Header, "Roles", r.Roles), nil
			}),
		a.onNames("get <role name>", "Gets detailed information of a role", "role get command requires role name as its argument", 1,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.RoleGet(ctx, args[0])
				if err != nil {
					return view{}, err
				}
				return view{
					json:   r,
					simple: func(p *printer) { showRole(p, args[0], r) },
					fields: func(p *printer) {
						p.header(r.Header)
						for _, perm := range r.Perm {
							p.line(`"PermType" : `, perm.GetPermType().String())
							p.printf("\"Key\" : %q\n", perm.GetKey())
							p.printf("\"RangeEnd\" : %q\n", perm.GetRangeEnd())
						}
					},
				}, nil
			}),
		a.roleGrantCommand(), a.roleRevokeCommand())
	return cmd
}

// permitted are the flags by which a permission names its keys.
type permitted struct{ prefix, fromKey bool }

func (f *permitted) declare(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.prefix, "prefix", false, "all keys with the prefix")
	cmd.Flags().BoolVar(&f.fromKey, "from-key", false, "all keys that are greater than or equal to the key")
}

func (f *permitted) span(args []string) (key, end string, err error) {
	key = args[0]
	switch {
	case f.prefix && f.fromKey:
		return "", "", badArgs("--from-key and --prefix flags are mutually exclusive")
	case key == "" && (f.prefix || f.fromKey):
		return "\x00", "\x00", nil
	case key == "":
		return "\x00", "", nil
	case len(args) > 1 && f.prefix:
		return "", "", badArgs("unexpected endkey argument with --prefix flag")
	case len(args) > 1 && f.fromKey:
		return "", "", badArgs("unexpected endkey argument with --from-key flag")
	case len(args) > 1:
		return key, args[1], nil
	case f.prefix:
		return key, clientv3.GetPrefixRangeEnd(key), nil
	case f.fromKey:
		return key, "\x00", nil
	}
	return key, "", nil
}

func (a *app) roleGrantCommand() *cobra.Command {
	var f permitted
	cmd := &cobra.Command{
		Use: "grant-permission [options] <role name> <permission type> <key> [endkey]", Short: "Grants a key to a role",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 || len(args) > 4 {
				return badArgs("role grant command requires role name, permission type, and key [endkey] as its argument")
			}
			kind, err := clientv3.StrToPermissionType(args[1])
			if err != nil {
				return badArgs("%w", err)
			}
			key, end, err := f.span(args[2:])
			if err != nil {
				return err
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.RoleGrantPermission(ctx, args[0], key, end, kind)
				if err != nil {
					return err
				}
				return a.show(changed(r, r.Header, "Role %s updated", args[0]))
			})
		},
	}
	f.declare(cmd)
	return cmd
}

func (a *app) roleRevokeCommand() *cobra.Command {
	var f permitted
	cmd := &cobra.Command{
		Use: "revoke-permission <role name> <key> [endkey]", Short: "Revokes a key from a role",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return badArgs("role revoke-permission command requires role name and key [endkey] as its argument")
			}
			key, end, err := f.span(args[1:])
			if err != nil {
				return err
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.RoleRevokePermission(ctx, args[0], key, end)
				if err != nil {
					return err
				}
				switch end {
				case "":
					return a.show(changed(r, r.Header, "Permission of key %s is revoked from role %s", args[1], args[0]))
				case "\x00":
					return a.show(changed(r, r.Header, "Permission of range [%s, <open ended> is revoked from role %s", args[1], args[0]))
				}
				return a.show(changed(r, r.Header, "Permission of range [%s, %s) is revoked from role %s", args[1], end, args[0]))
			})
		},
	}
	f.declare(cmd)
	return cmd
}

// showRole lists the permissions of a role, as etcdctl does.
func showRole(p *printer, name string, r *clientv3.AuthRoleGetResponse) {
	p.line("Role", name)
	for _, side := range []struct {
		label string
		kind  authpb.Permission_Type
	}{{"KV Read:", authpb.Permission_READ}, {"KV Write:", authpb.Permission_WRITE}} {
		p.line(side.label)
		for _, perm := range r.Perm {
			if perm.GetPermType() == side.kind || perm.GetPermType() == authpb.Permission_READWRITE {
				showSpan(p, string(perm.GetKey()), string(perm.GetRangeEnd()))
			}
		}
	}
}

func showSpan(p *printer, key, end string) {
	switch {
	case end == "":
		p.printf("\t%s\n", key)
		return
	case end == "\x00":
		p.printf("\t[%s, <open ended>", key)
	default:
		p.printf("\t[%s, %s)", key, end)
	}
	if key != "" && clientv3.GetPrefixRangeEnd(key) == end {
		p.printf(" (prefix %s)", key)
	}
	p.line()
}
