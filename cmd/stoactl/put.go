package main

import (
	"context"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) putCommand() *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use: "put [options] <key> [value]", Short: "Puts the given key into the store",
		Long: "Puts the given key into the store. Without a value it is read from stdin.\nUse -- before a value that begins with a dash.",
		RunE: func(_ *cobra.Command, args []string) error {
			op, err := f.op(args, a.in)
			if err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, c store) error {
				r, err := c.Do(ctx, op)
				if err != nil {
					return err
				}
				return a.show(putView(r.Put()))
			})
		},
	}
	f.declare(cmd.Flags())
	return cmd
}

func putView(r *clientv3.PutResponse) view {
	return view{
		json: r, protobuf: (*pb.PutResponse)(r),
		simple: func(p *printer) {
			p.line("OK")
			if r.PrevKv != nil {
				p.kv(r.PrevKv, false)
			}
		},
		fields: func(p *printer) {
			p.header(r.Header)
			if r.PrevKv != nil {
				p.fieldsKV("Prev", r.PrevKv)
			}
		},
	}
}
