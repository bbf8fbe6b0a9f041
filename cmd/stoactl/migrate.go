package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoa-kv/stoa/client/migrate"
	"github.com/stoa-kv/stoa/client/mirror"
)

// migrateFlags are the flags of migrate. Those of the target's connection replace the global
// ones, which are for both.
type migrateFlags struct {
	from, to       []string
	cert, key, ca  string
	user, password string
	config         migrate.Config
}

func (a *app) migrateCommand() *cobra.Command {
	var o migrateFlags
	cmd := &cobra.Command{
		Use: "migrate --from ENDPOINTS --to ENDPOINTS [options]", Short: "Moves the keys and leases of a running cluster into another, of stoa or etcd",
		Long: "Copies all keys, compares both sides, and writes what changes at the source into the target until it is interrupted.\n" +
			"With --cut-over it then waits until the source has had no write for --quiet-time, moves the leases, compares again and ends: clients can go to the target.\n" +
			"It can be interrupted or killed and run again at any point; a second one takes over from the first. The target must be empty at first, and nothing else may write to it.\n" +
			"--cert, --key, --cacert, --user and --password are for both clusters, unless those of the target are given.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, list := range map[string][]string{"from": o.from, "to": o.to} {
				if len(list) == 0 {
					return badArgs("--%s is missing: the endpoints of a cluster", name)
				}
				trim(list)
			}
			if cmd.Flags().Changed("endpoints") {
				return badArgs("migrate has --from and --to instead of --endpoints")
			}
			if o.password != "" && o.user == "" {
				return badArgs("--to-password is given, but no --to-user")
			}
			return a.migrate(&o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.from, "from", nil, "gRPC endpoints of the source, which is only read")
	f.StringSliceVar(&o.to, "to", nil, "gRPC endpoints of the target")
	f.BoolVar(&o.config.CutOver, "cut-over", false, "end the migration once the source is no longer written")
	f.DurationVar(&o.config.Quiet, "quiet-time", 3*time.Second, "with --cut-over: how long the source must have had no write")
	f.BoolVar(&o.config.Overwrite, "overwrite", false, "accept a target that has keys, and replace or delete those that differ (after a restore of a snapshot of the source)")
	f.IntVar(&o.config.MaxTxnOps, "max-txn-ops", 128, "the target's --max-txn-ops")
	f.StringVar(&o.cert, "to-cert", "", "identify to the target with this TLS certificate file")
	f.StringVar(&o.key, "to-key", "", "identify to the target with this TLS key file")
	f.StringVar(&o.ca, "to-cacert", "", "verify the target's servers with this CA bundle")
	f.StringVar(&o.user, "to-user", "", "username[:password] at the target")
	f.StringVar(&o.password, "to-password", "", "password at the target, if --to-user has none")
	return cmd
}

func (a *app) migrate(o *migrateFlags) error {
	if o.config.MaxTxnOps < 2 {
		return badArgs("--max-txn-ops=%d: at least 2 are needed", o.config.MaxTxnOps)
	}
	if a.o.form != "simple" && a.o.form != "json" && a.o.form != "fields" {
		return badFeature("--write-out=%s is not supported here", a.o.form)
	}
	from, err := a.reach("from", o.from)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := o.target(a).reach("to", o.to)
	if err != nil {
		return err
	}
	defer to.Close()
	o.config.From, o.config.To = from.Client, to.Client
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	show := &migrationView{app: a, terminal: a.progressBar("copying"), cutOver: o.config.CutOver, quiet: o.config.Quiet}
	o.config.Observer = show.observer()
	r, err := migrate.Run(ctx, o.config)
	show.endLine()
	if err != nil {
		return migrationError(ctx, from.explain(to.explain(err)))
	}
	return a.show(migrated(r, o.to))
}

// target is the app with the connection flags of the target.
func (o *migrateFlags) target(a *app) *app {
	t := *a
	if o.cert != "" || o.key != "" {
		t.o.cert, t.o.key = o.cert, o.key
	}
	if o.ca != "" {
		t.o.ca = o.ca
	}
	if o.user != "" {
		t.o.user, t.o.password, t.o.token = o.user, o.password, ""
	}
	return &t
}

// reach connects, and fails if no server answers: later it waits for them.
func (a *app) reach(flag string, endpoints []string) (*connection, error) {
	c, err := a.connect(endpoints...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	if _, err := c.Get(ctx, "\x00"); err != nil {
		c.Close()
		return nil, badConnection(fmt.Errorf("--%s: %w", flag, c.explain(err)))
	}
	return c, nil
}

func migrationError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &exit{exitInterrupted, errors.New("interrupted: run it again to go on")}
	case errors.Is(err, mirror.ErrNotEmpty):
		return fmt.Errorf("%w and no mark of a migration: a new migration needs an empty target, and one that has cut over is finished. "+
			"--overwrite makes it equal to the source, whatever it has", err)
	case errors.Is(err, mirror.ErrTakenOver):
		return fmt.Errorf("%w: this one ends, and the other goes on", err)
	}
	return err
}

func migrated(r migrate.Result, to []string) view {
	type result struct {
		Keys           int64  `json:"keys"`
		KeysWithLease  int64  `json:"keysWithLease"`
		Leases         int    `json:"leases"`
		SHA256         string `json:"sha256"`
		SourceRevision int64  `json:"sourceRevision"`
		TargetRevision int64  `json:"targetRevision"`
	}
	v := result{r.Sum.Keys, r.Sum.Leased, r.Leases, fmt.Sprintf("%x", r.Sum.SHA256), r.Place.Source, r.Place.Target}
	return view{
		json: v,
		simple: func(p *printer) {
			p.printf("Migrated %d keys and %d leases, revision %d of the source: clients can go to %s\n", v.Keys, v.Leases, v.SourceRevision, strings.Join(to, ","))
		},
		fields: func(p *printer) {
			p.line(`"Keys" :`, v.Keys)
			p.line(`"KeysWithLease" :`, v.KeysWithLease)
			p.line(`"Leases" :`, v.Leases)
			p.printf("\"SHA256\" : %q\n", v.SHA256)
			p.line(`"SourceRevision" :`, v.SourceRevision)
			p.line(`"TargetRevision" :`, v.TargetRevision)
		},
	}
}
