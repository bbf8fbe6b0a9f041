package main

import (
	"context"
	"fmt"

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
	return cmd
}

func partitionView(r *stoapb.ListPartitionsResponse) view {
	return view{
		json: r,
		fields: func(p *printer) {
			p.line(`"ClusterID" :`, p.id(r.ClusterId))
			p.line(`"MemberID" :`, p.id(r.MemberId))
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
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, g := range r.Partitions {
				rows = append(rows, []string{
					fmt.Sprint(g.Id), fmt.Sprintf("%x", g.Leader), fmt.Sprint(g.Term),
					fmt.Sprint(g.CommittedIndex), fmt.Sprint(g.AppliedIndex),
					fmt.Sprint(g.Revision), fmt.Sprint(g.ClosedRevision), fmt.Sprint(g.Slots), fmt.Sprint(g.Keys),
				})
			}
			return []string{"partition", "leader", "term", "committed", "applied", "revision", "closed", "slots", "keys"}, rows
		},
	}
}
