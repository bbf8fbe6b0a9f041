package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

func (a *app) partitionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "partition <subcommand>", Short: "Partition related commands (stoa only)"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "Lists the partition groups as the endpoint that answers sees them", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := client.Of(c).Partitions(ctx)
				if err != nil {
					return err
				}
				return a.show(partitionView(r))
			})
		},
	})
	cmd.AddCommand(a.partitionMoveCommand(), a.partitionPinCommand(), a.partitionUnpinCommand(), a.partitionBalanceCommand(),
		a.partitionResizeCommand("grow", "Adds partitions to a running cluster; keys move into them afterwards", func(now, to int) bool { return to > now }),
		a.partitionResizeCommand("shrink", "Removes partitions from a running cluster; their keys move to the others before", func(now, to int) bool { return to < now }))
	return cmd
}

func (a *app) partitionMoveCommand() *cobra.Command {
	return a.partitionToCommand("move", "Moves a key, or a directory, to a partition, with all other keys of its slot", "%q moves to partition %d",
		func(ctx context.Context, c stoapb.PartitionsClient, prefix []byte, to uint32) (any, error) {
			return c.Move(ctx, &stoapb.MoveKeysRequest{Prefix: prefix, Partition: to})
		})
}

func (a *app) partitionPinCommand() *cobra.Command {
	return a.partitionToCommand("pin", "Brings all keys of a prefix together in a partition, and keeps them there", "%q pinned to partition %d",
		func(ctx context.Context, c stoapb.PartitionsClient, prefix []byte, to uint32) (any, error) {
			return c.Pin(ctx, &stoapb.PinKeysRequest{Prefix: prefix, Partition: to})
		})
}

// partitionToCommand is a command that brings a prefix to the partition of its flag --to.
func (a *app) partitionToCommand(name, short, said string, do func(_ context.Context, _ stoapb.PartitionsClient, prefix []byte, to uint32) (any, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name + " <prefix> --to N", Short: short, Args: argsAre(cobra.ExactArgs(1))}
	to := cmd.Flags().Uint32("to", 0, "the partition")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("to") {
			return badArgs("partition %s command requires --to", name)
		}
		return a.place(func(ctx context.Context, c stoapb.PartitionsClient) (any, error) {
			return do(ctx, c, []byte(args[0]), *to)
		}, said, args[0], *to)
	}
	return cmd
}

func (a *app) partitionUnpinCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unpin <prefix>", Short: "Removes a pin: its keys may move again, and spread",
		Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.place(func(ctx context.Context, c stoapb.PartitionsClient) (any, error) {
				return c.Unpin(ctx, &stoapb.UnpinKeysRequest{Prefix: []byte(args[0])})
			}, "%q unpinned", args[0])
		},
	}
}

// resizeTimeout is for a change of the number of partitions: a million keys move in half a minute.
const resizeTimeout = 10 * time.Minute

// partitionResizeCommand changes the number of partitions, if it is on the side of the present
// one that the command's name says.
func (a *app) partitionResizeCommand(name, short string, fits func(now, to int) bool) *cobra.Command {
	return &cobra.Command{
		Use: name + " <partitions>", Short: short, Args: argsAre(cobra.ExactArgs(1)),
		Long: fmt.Sprintf("%s.\nIt waits for %.0f minutes at most, unless --command-timeout is given. If it ends early, give it again: it does what is left to do.",
			short, resizeTimeout.Minutes()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.limited(cmd) {
				a.o.command = resizeTimeout
			}
			number, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil || number < 1 {
				return badArgs("bad number of partitions %q", args[0])
			}
			to := int(number)
			return a.place(func(ctx context.Context, c stoapb.PartitionsClient) (any, error) {
				list, err := c.List(ctx, &stoapb.ListPartitionsRequest{})
				if err != nil {
					return nil, err
				}
				if now := len(list.Partitions); now != to && !fits(now, to) {
					return nil, fmt.Errorf("the cluster has %s: that would not %s their number to %d", partitionsText(now), name, to)
				}
				return c.Resize(ctx, &stoapb.ResizeRequest{Partitions: uint32(to)})
			}, "%s", partitionsText(to))
		},
	}
}

// partitionsText is a number of partitions in words.
func partitionsText(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", n)
}

// place has a request carried out that places keys, and says so.
func (a *app) place(do func(context.Context, stoapb.PartitionsClient) (any, error), format string, args ...any) error {
	return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
		r, err := do(ctx, stoapb.NewPartitionsClient(c.ActiveConnection()))
		if err != nil {
			return err
		}
		text := func(p *printer) { p.printf(format+"\n", args...) }
		return a.show(view{json: r, simple: text, fields: text})
	})
}

// pinsIn are the pins of a partition, for a table.
func pinsIn(r *stoapb.ListPartitionsResponse, partition uint32) string {
	var list []string
	for _, pin := range r.Pins {
		if pin.Partition == partition {
			list = append(list, fmt.Sprintf("%q", pin.Prefix))
		}
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, " ")
}

// percent is a part of a loop's time.
func percent(load float64) string { return fmt.Sprintf("%.0f%%", 100*load) }

// hottestIn are the prefixes that cause most of a partition's load, for a table.
func hottestIn(g *stoapb.Partition) string {
	var list []string
	for _, h := range g.Hottest {
		list = append(list, fmt.Sprintf("%q %s", h.Prefix, percent(h.Load)))
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, " ")
}

func partitionView(r *stoapb.ListPartitionsResponse) view {
	return view{
		json: r,
		fields: func(p *printer) {
			p.line(`"ClusterID" :`, p.id(r.ClusterId))
			p.line(`"MemberID" :`, p.id(r.MemberId))
			p.line(`"Moving" :`, r.Moving)
			for _, pin := range r.Pins {
				p.line()
				p.printf("\"Pin\" : %q\n", pin.Prefix)
				p.line(`"Partition" :`, pin.Partition)
			}
			for _, g := range r.Partitions {
				p.line()
				p.line(`"Partition" :`, g.Id)
				p.line(`"Leader" :`, p.id(g.Leader))
				p.line(`"Term" :`, g.Term)
				p.line(`"CommittedIndex" :`, g.CommittedIndex)
				p.line(`"AppliedIndex" :`, g.AppliedIndex)
				p.line(`"Revision" :`, g.Revision)
				p.line(`"ClosedRevision" :`, g.ClosedRevision)
				p.line(`"Slots" :`, g.Slots)
				p.line(`"Keys" :`, g.Keys)
				p.line(`"Bytes" :`, g.Bytes)
				p.printf("\"Load\" : %.3f\n", g.Load)
				for _, h := range g.Hottest {
					p.printf("\"Hottest\" : %q %.3f\n", h.Prefix, h.Load)
				}
				for _, s := range g.HottestSlots {
					p.printf("\"HottestSlot\" : %d %.3f %q\n", s.Slot, s.Load, s.Prefix)
				}
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, g := range r.Partitions {
				rows = append(rows, []string{
					fmt.Sprint(g.Id), fmt.Sprintf("%x", g.Leader), fmt.Sprint(g.Term),
					fmt.Sprint(g.CommittedIndex), fmt.Sprint(g.AppliedIndex),
					fmt.Sprint(g.Revision), fmt.Sprint(g.ClosedRevision), fmt.Sprint(g.Slots), fmt.Sprint(g.Keys), bytesOf(g.Bytes), percent(g.Load), hottestIn(g), pinsIn(r, g.Id),
				})
			}
			return []string{"partition", "leader", "term", "committed", "applied", "revision", "closed", "slots", "keys", "size", "load", "hottest prefixes", "pins"}, rows
		},
	}
}
