package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) hashKVCommand(cluster *bool) *cobra.Command {
	var rev int64
	cmd := &cobra.Command{
		Use: "hashkv", Short: "Prints the KV history hash for each endpoint in --endpoints", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.endpointHashKV(*cluster, rev) },
	}
	cmd.PersistentFlags().Int64Var(&rev, "rev", 0, "maximum revision to hash (default: latest revision)")
	return cmd
}

type endpointHashKV struct {
	Endpoint string                   `json:"Endpoint"`
	HashKV   *clientv3.HashKVResponse `json:"HashKV"`
}

func (a *app) endpointHashKV(cluster bool, rev int64) error {
	return ofEach(a, cluster, "hash", hashKVView, func(ctx context.Context, c *connection, ep string) (endpointHashKV, error) {
		r, err := c.HashKV(ctx, ep, rev)
		return endpointHashKV{ep, r}, err
	})
}

func hashKVView(all []endpointHashKV) view {
	return view{
		json: all,
		fields: func(p *printer) {
			for _, h := range all {
				p.header(h.HashKV.Header)
				p.printf("\"Endpoint\" : %q\n", h.Endpoint)
				p.line(`"Hash" :`, h.HashKV.Hash)
				p.line(`"HashRevision" :`, h.HashKV.HashRevision)
				p.line()
			}
		},
		table: func() (head []string, rows [][]string) {
			for _, h := range all {
				rows = append(rows, []string{h.Endpoint, fmt.Sprint(h.HashKV.Hash), fmt.Sprint(h.HashKV.HashRevision)})
			}
			return []string{"endpoint", "hash", "hash_revision"}, rows
		},
	}
}
