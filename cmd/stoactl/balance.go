package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

func (a *app) partitionBalanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "balance", Short: "Moves slots between partitions to even out the load of the leader's loops, at once", Args: noArgs,
	}
	dry := cmd.Flags().Bool("dry-run", false, "only print what would be moved, and why")
	cmd.RunE = func(*cobra.Command, []string) error {
		return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
			r, err := stoapb.NewPartitionsClient(c.ActiveConnection()).Balance(ctx, &stoapb.BalanceRequest{DryRun: *dry})
			if err != nil {
				return err
			}
			return a.show(balanceView(r, *dry))
		})
	}
	return cmd
}

func balanceView(r *stoapb.BalanceResponse, dry bool) view {
	fields := func(p *printer) {
		p.printf("\"Reason\" : %q\n", r.Reason)
		for i := range r.Before {
			p.line()
			p.line(`"Partition" :`, i)
			p.printf("\"Load\" : %.3f\n\"After\" : %.3f\n", r.Before[i], r.After[i])
		}
		for _, m := range r.Moves {
			p.line()
			p.line(`"Slot" :`, m.Slot)
			p.line(`"From" :`, m.From)
			p.line(`"To" :`, m.To)
			p.printf("\"Load\" : %.3f\n", m.Load)
			p.line(`"Keys" :`, m.Keys)
			p.printf("\"Prefix\" : %q\n", m.Prefix)
		}
	}
	return view{
		json: r, fields: fields,
		simple: func(p *printer) {
			p.line(r.Reason)
			if loads := loadsOf(r); loads != "" {
				p.line("load: " + loads)
			}
			verb := "moves"
			if dry {
				verb = "would move"
			}
			for _, m := range r.Moves {
				p.printf("slot %d %s from partition %d to %d: load %s, %d keys%s\n", m.Slot, verb, m.From, m.To, percentOf(m.Load), m.Keys, ofPrefix(m.Prefix))
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, m := range r.Moves {
				rows = append(rows, []string{fmt.Sprint(m.Slot), fmt.Sprint(m.From), fmt.Sprint(m.To), percentOf(m.Load), fmt.Sprint(m.Keys), fmt.Sprintf("%q", m.Prefix)})
			}
			return []string{"slot", "from", "to", "load", "keys", "hottest prefix"}, rows
		},
	}
}

// loadsOf are the loads of the partitions, and what they would be.
func loadsOf(r *stoapb.BalanceResponse) string {
	var list []string
	for i, now := range r.Before {
		if len(r.Moves) == 0 {
			list = append(list, percent(now))
		} else {
			list = append(list, percent(now)+" → "+percent(r.After[i]))
		}
	}
	return strings.Join(list, ", ")
}

// percentOf is a slot's part of a loop's time, which is small.
func percentOf(load float64) string { return fmt.Sprintf("%.2f%%", 100*load) }

func ofPrefix(prefix []byte) string {
	if len(prefix) == 0 {
		return ""
	}
	return fmt.Sprintf(", hottest %q", prefix)
}
