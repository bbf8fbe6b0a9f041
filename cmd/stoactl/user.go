package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) userCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "user <subcommand>", Short: "User related commands"}
	cmd.AddCommand(a.userAddCommand(), a.userGetCommand(), a.userPasswordCommand(),
		a.onNames("delete <user name>", "Deletes a user", "user delete command requires user name as its argument", 1,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.UserDelete(ctx, args[0])
				if err != nil {
					return view{}, err
				}
				return changed(r, r.Header, "User %s deleted", args[0]), nil
			}),
		a.onNames("list", "Lists all users", "user list command requires no arguments", 0,
			func(ctx context.Context, c *clientv3.Client, _ []string) (view, error) {
				r, err := c.UserList(ctx)
				if err != nil {
					return view{}, err
				}
				return names(r, r.Header, "Users", r.Users), nil
			}),
		a.onNames("grant-role <user name> <role name>", "Grants a role to a user", "user grant command requires user name and role name as its argument", 2,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.UserGrantRole(ctx, args[0], args[1])
				if err != nil {
					return view{}, err
				}
				return changed(r, r.Header, "Role %s is granted to user %s", args[1], args[0]), nil
			}),
		a.onNames("revoke-role <user name> <role name>", "Revokes a role from a user", "user revoke-role requires user name and role name as its argument", 2,
			func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
				r, err := c.UserRevokeRole(ctx, args[0], args[1])
				if err != nil {
					return view{}, err
				}
				return changed(r, r.Header, "Role %s is revoked from user %s", args[1], args[0]), nil
			}),
	)
	return cmd
}

func (a *app) userAddCommand() *cobra.Command {
	var interactive, none bool
	var given string
	cmd := withNames("add <user name or user:password> [options]", "Adds a new user", "user add command requires user name as its argument", 1,
		func(args []string) (err error) {
			name, password := args[0], given
			if !none && given == "" {
				if before, after, ok := strings.Cut(name, ":"); ok {
					name, password = before, after
				} else if password, err = a.password(name, interactive); err != nil {
					return err
				}
			}
			if name == "" {
				return badArgs("empty user name is not allowed")
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.UserAddWithOptions(ctx, name, password, &clientv3.UserAddOptions{NoPassword: none})
				if err != nil {
					return err
				}
				return a.show(changed(r, r.Header, "User %s created", name))
			})
		})
	cmd.Flags().BoolVar(&interactive, "interactive", true, "ask for the password, instead of reading it from stdin")
	cmd.Flags().StringVar(&given, "new-user-password", "", "the password")
	cmd.Flags().BoolVar(&none, "no-password", false, "create a user without password (for the common names of certificates)")
	return cmd
}

func (a *app) userPasswordCommand() *cobra.Command {
	var interactive bool
	cmd := withNames("passwd <user name> [options]", "Changes password of user", "user passwd command requires user name as its argument", 1,
		func(args []string) error {
			password, err := a.password(args[0], interactive)
			if err != nil {
				return err
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.UserChangePassword(ctx, args[0], password)
				if err != nil {
					return err
				}
				return a.show(changed(r, r.Header, "Password updated"))
			})
		})
	cmd.Flags().BoolVar(&interactive, "interactive", true, "ask for the password, instead of reading it from stdin")
	return cmd
}

// password asks for a password twice, or reads one word. It comes before the connection: typing has no limit of time.
func (a *app) password(name string, interactive bool) (string, error) {
	if !interactive {
		word, err := a.in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", badArgs("reading the password: %w", err)
		}
		return strings.TrimSpace(word), nil
	}
	defer silence()()
	var typed [2]string
	for i, prompt := range []string{"Password of %s: ", "Type password of %s again for confirmation: "} {
		fmt.Fprintf(a.errs, prompt, name)
		line, err := a.in.ReadString('\n')
		fmt.Fprintln(a.errs)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", badArgs("failed to ask password: %w", err)
		}
		if typed[i] = strings.TrimRight(line, "\r\n"); typed[i] == "" {
			return "", badArgs("empty password")
		}
	}
	if typed[0] != typed[1] {
		return "", badArgs("given passwords are different")
	}
	return typed[0], nil
}

func (a *app) userGetCommand() *cobra.Command {
	detail := false
	cmd := a.onNames("get <user name> [options]", "Gets detailed information of a user", "user get command requires user name as its argument", 1,
		func(ctx context.Context, c *clientv3.Client, args []string) (view, error) {
			r, err := c.UserGet(ctx, args[0])
			if err != nil {
				return view{}, err
			}
			roles := map[string]*clientv3.AuthRoleGetResponse{}
			for _, role := range r.Roles {
				if !detail {
					break
				}
				if roles[role], err = c.RoleGet(ctx, role); err != nil {
					return view{}, err
				}
			}
			return view{
				json: r,
				simple: func(p *printer) {
					p.line("User:", args[0])
					if !detail {
						p.line(strings.TrimRight("Roles: "+strings.Join(r.Roles, " "), " "))
						return
					}
					for _, role := range r.Roles {
						p.line()
						showRole(p, role, roles[role])
					}
				},
			}, nil
		})
	cmd.Flags().BoolVar(&detail, "detail", false, "show permissions of roles granted to the user")
	return cmd
}
