package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) delCommand() *cobra.Command {
	var f delFlags
	cmd := &cobra.Command{
		Use: "del [options] <key> [range_end]", Short: "Removes the specified key or range of keys [key, range_end)",
		RunE: func(_ *cobra.Command, args []string) error {
			op, err := f.op(args, nil)
			if err != nil {
				return err
			}
			if len(args) > 1 && !f.sure {
				fmt.Fprintf(a.errs, "Warning: Keys between %q and %q will be deleted. Please interrupt the command within next 2 seconds to cancel. "+
					"You can provide `--range` flag to avoid the delay.\n", args[0], args[1])
				time.Sleep(2 * time.Second)
			}
			return a.withStore(func(ctx context.Context, c store) error {
				r, err := c.Do(ctx, op)
				if err != nil {
					return err
				}
				return a.show(delView(r.Del()))
			})
		},
	}
	f.declare(cmd.Flags())
	return cmd
}

func delView(r *clientv3.DeleteResponse) view {
	return view{
		json: r, protobuf: (*pb.DeleteRangeResponse)(r),
		simple: func(p *printer) {
			p.line(r.Deleted)
			for _, kv := range r.PrevKvs {
				p.kv(kv, false)
			}
		},
		fields: func(p *printer) {
			p.header(r.Header)
			p.line(`"Deleted" :`, r.Deleted)
			for _, kv := range r.PrevKvs {
				p.fieldsKV("Prev", kv)
			}
		},
	}
}
