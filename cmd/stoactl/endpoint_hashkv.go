package main

import (
	"context"
	"errors"
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
	eps, err := a.targets(cluster)
	if err != nil {
		return err
	}
	var all []endpointHashKV
	var failed error
	for _, ep := range eps {
		r, err := a.hashOf(ep, rev)
		if err != nil {
			fmt.Fprintf(a.errs, "Failed to get the hash of endpoint %s (%v)\n", ep, err)
			failed = errors.New("some endpoints did not answer")
			continue
		}
		all = append(all, endpointHashKV{ep, r})
	}
	if err := a.show(hashKVView(all)); err != nil {
		return err
	}
	return failed
}

func (a *app) hashOf(ep string, rev int64) (*clientv3.HashKVResponse, error) {
	c, err := a.connect(ep)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	r, err := c.HashKV(ctx, ep, rev)
	return r, c.explain(err)
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
