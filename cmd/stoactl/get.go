package main

import (
	"context"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) getCommand() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use: "get [options] <key> [range_end]", Short: "Gets the key or a range of keys",
		RunE: func(_ *cobra.Command, args []string) error {
			key, opts, err := f.options(args)
			switch {
			case err != nil:
				return err
			case f.valueOnly && a.o.form != "simple":
				return badArgs("--print-value-only is only for --write-out=simple")
			case f.countOnly && a.o.form == "simple":
				return badArgs("--count-only is only for --write-out=fields and json")
			}
			return a.withStore(func(ctx context.Context, c store) error {
				r, err := f.fetch(ctx, c, key, opts)
				if err != nil {
					return err
				}
				return a.show(getView(r, f.valueOnly))
			})
		},
	}
	f.declare(cmd.Flags())
	return cmd
}

func (f *getFlags) fetch(ctx context.Context, c store, key string, opts []clientv3.OpOption) (*clientv3.GetResponse, error) {
	if !f.stream {
		return c.Get(ctx, key, opts...)
	}
	stream, err := c.GetStream(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return clientv3.GetStreamToGetResponse(stream)
}

func getView(r *clientv3.GetResponse, valueOnly bool) view {
	return view{
		json: r, protobuf: (*pb.RangeResponse)(r),
		simple: func(p *printer) {
			for _, kv := range r.Kvs {
				p.kv(kv, valueOnly)
			}
		},
		fields: func(p *printer) {
			p.header(r.Header)
			for _, kv := range r.Kvs {
				p.fieldsKV("", kv)
			}
			p.line(`"More" :`, r.More)
			p.line(`"Count" :`, r.Count)
		},
	}
}
