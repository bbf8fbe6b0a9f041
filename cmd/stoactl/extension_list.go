package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/internal/extension"
)

// registered is an extension as described by its keys under /em/.
type registered struct {
	Name          string   `json:"name"`
	Owner         string   `json:"owner"`
	State         string   `json:"state"`
	Subscriptions []string `json:"subscriptions"`
	Scope         []string `json:"scope"`
	Acks          []string `json:"acks"`
	Size          int      `json:"size"`
	Revision      int64    `json:"revision"` // of the registration
	Source        string   `json:"source,omitempty"`
}

func (a *app) extensionList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Lists the extensions of the cluster", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := a.registered(extension.Root)
			if err != nil {
				return err
			}
			for _, e := range all {
				e.Source = ""
			}
			return a.show(extensionsView(all))
		},
	}
}

func (a *app) extensionShow() *cobra.Command {
	return &cobra.Command{
		Use: "show <name>", Short: "Shows an extension and its source", Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.registered(string(extension.SourceKey(args[0])))
			if err != nil {
				return err
			}
			for _, e := range all {
				if e.Name == args[0] {
					return a.show(extensionView(e))
				}
			}
			return fmt.Errorf("extension %q: %w", args[0], errors.New("there is no such extension"))
		},
	}
}

// registered reads the extensions whose keys begin so, in the order of their names.
func (a *app) registered(prefix string) (all []*registered, err error) {
	err = a.withClient(func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		all = gather(r.Kvs)
		return nil
	})
	return all, err
}

// gather makes one record of the keys of each extension.
func gather(kvs []*mvccpb.KeyValue) []*registered {
	byName := map[string]*registered{}
	for _, kv := range kvs {
		role, name, client := extension.Parse(kv.Key)
		e := byName[name]
		if e == nil {
			e = &registered{Name: name, State: "enabled"}
			byName[name] = e
		}
		switch role {
		case extension.Source:
			e.Source, e.Size, e.Revision = string(kv.Value), len(kv.Value), kv.ModRevision
			e.describe(kv)
		case extension.Owner:
			e.Owner = string(kv.Value)
		case extension.AckOf:
			if len(kv.Value) > 0 {
				client += " (" + string(kv.Value) + ")"
			}
			e.Acks = append(e.Acks, client)
		case extension.Status:
			e.State = string(kv.Value)
		}
	}
	var all []*registered
	for _, e := range byName {
		if e.Revision > 0 {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *registered) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// describe returns the subscriptions of a source, none for one that this
// version of the language can't parse.
func (e *registered) describe(kv *mvccpb.KeyValue) {
	code, err := extension.CompileCode(extension.Language, kv.Value)
	if err != nil {
		e.Subscriptions, e.Scope = []string{"?"}, []string{"?"}
		return
	}
	compiled := code.As(e.Name, kv.ModRevision)
	e.Subscriptions = append(operationsOf(compiled), eventsOf(compiled)...)
	e.Scope = scopeOf(compiled)
}

func operationsOf(e *extension.Extension) (list []string) {
	for _, s := range e.Operations {
		list = append(list, s.Op.String()+" "+string(s.Pattern))
	}
	return list
}

func eventsOf(e *extension.Extension) (list []string) {
	for _, s := range e.Events {
		list = append(list, s.Type.String()+" "+string(s.Pattern))
	}
	return list
}

func scopeOf(e *extension.Extension) (list []string) {
	for _, p := range e.Scope {
		list = append(list, string(p))
	}
	return list
}

func extensionsView(all []*registered) view {
	return view{
		json: all,
		fields: func(p *printer) {
			for i, e := range all {
				if i > 0 {
					p.line()
				}
				e.fields(p)
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, e := range all {
				rows = append(rows, []string{
					e.Name, e.Owner, e.State, strings.Join(e.Subscriptions, "; "), strings.Join(e.Scope, "; "),
					fmt.Sprint(e.Size), fmt.Sprint(e.Revision),
				})
			}
			return []string{"name", "owner", "state", "subscriptions", "scope", "size", "revision"}, rows
		},
	}
}

func (e *registered) fields(p *printer) {
	p.printf("\"Name\" : %q\n", e.Name)
	p.printf("\"Owner\" : %q\n", e.Owner)
	p.printf("\"State\" : %q\n", e.State)
	for _, s := range e.Subscriptions {
		p.printf("\"Subscription\" : %q\n", s)
	}
	for _, s := range e.Scope {
		p.printf("\"Scope\" : %q\n", s)
	}
	for _, s := range e.Acks {
		p.printf("\"Ack\" : %q\n", s)
	}
	p.line(`"Size" :`, e.Size)
	p.line(`"Revision" :`, e.Revision)
}

func extensionView(e *registered) view {
	return view{
		json: e,
		// As Lua, so that it can be saved and registered again.
		simple: func(p *printer) {
			for _, l := range []struct {
				name  string
				value string
			}{
				{"name", e.Name}, {"owner", e.Owner}, {"state", e.State}, {"subscriptions", strings.Join(e.Subscriptions, "; ")},
				{"scope", strings.Join(e.Scope, "; ")}, {"acknowledged", strings.Join(e.Acks, "; ")}, {"revision", fmt.Sprint(e.Revision)},
			} {
				if l.value != "" {
					p.printf("-- %s: %s\n", l.name, strings.ReplaceAll(l.value, "\n", " "))
				}
			}
			p.printf("%s", e.Source)
			if !strings.HasSuffix(e.Source, "\n") {
				p.line()
			}
		},
		fields: func(p *printer) {
			e.fields(p)
			p.printf("\"Source\" : %q\n", e.Source)
		},
	}
}
