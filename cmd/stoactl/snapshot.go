package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/stoa-kv/stoa/internal/snapshot"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot <subcommand>", Short: "Saves, describes and restores snapshots"}
	cmd.AddCommand(a.snapshotSaveCommand(), a.snapshotStatusCommand(), a.snapshotRestoreCommand())
	return cmd
}

func (a *app) snapshotStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status <filename>", Short: "Gets backend snapshot status of a given file",
		Long: "Works on snapshots of stoa and of etcd, and on the files of stopped servers.\n" +
			"The simple form has hash, revision, total keys, total size and storage version. The checksum behind the file is compared by restore.",
		Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return a.snapshotStatus(args[0]) },
	}
}

// snapshotStatus has etcdutl's forms and field names.
type snapshotStatus struct {
	Hash      uint32 `json:"hash"`
	Revision  int64  `json:"revision"`
	TotalKey  int    `json:"totalKey"`
	TotalSize int64  `json:"totalSize"`
	Version   string `json:"version"`
}

func (a *app) snapshotStatus(file string) error {
	if err := a.checkForm(); err != nil {
		return err
	}
	st, err := snapshot.Status(file)
	if err != nil {
		return err
	}
	s := snapshotStatus{st.Hash, st.Revision, st.Keys, st.Size, st.Version}
	return a.show(view{
		json: s,
		fields: func(p *printer) {
			p.line(`"Hash" :`, s.Hash)
			p.line(`"Revision" :`, s.Revision)
			p.line(`"Keys" :`, s.TotalKey)
			p.line(`"Size" :`, s.TotalSize)
			p.line(`"Version" :`, s.Version)
		},
		table: func() ([]string, [][]string) {
			return []string{"hash", "revision", "total keys", "total size", "version"},
				[][]string{{fmt.Sprintf("%x", s.Hash), fmt.Sprint(s.Revision), fmt.Sprint(s.TotalKey), bytesOf(s.TotalSize), s.Version}}
		},
	})
}

func (a *app) snapshotRestoreCommand() *cobra.Command {
	var c snapshot.Config
	var peers string
	var bump uint64
	var compacted bool
	cmd := &cobra.Command{
		Use: "restore <filename> [options]", Short: "Makes the data directory of a new member out of a snapshot of stoa or etcd",
		Long: "Run it once for each member, with the same file and the same --initial-cluster, --initial-cluster-token, --partitions and --bump-revision.\n" +
			"The members then begin a new cluster with the keys, their history, the leases and the alarms of the file.\n" +
			"Pins stay, but for those to partitions that the new cluster doesn't have: these are printed.",
		Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if compacted != (bump > 0) {
				return badArgs("--bump-revision and --mark-compacted go together: revisions from before a gap must not be read as if nothing had been lost")
			}
			c.PeerURLs, c.BumpRevision = strings.Split(peers, ","), int64(min(bump, math.MaxInt64))
			if c.DataDir == "" {
				c.DataDir = c.Name + ".stoa"
			}
			return a.snapshotRestore(args[0], c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.DataDir, "data-dir", "", "the directory to make (default NAME.stoa)")
	f.StringVar(&c.WALDir, "wal-dir", "", "the server's --wal-dir, if it has one: it must be empty")
	f.StringVar(&c.Name, "name", "default", "this member's name")
	f.StringVar(&c.InitialCluster, "initial-cluster", "default=http://localhost:2380", "all members of the new cluster, as name=peer-url,...")
	f.StringVar(&c.Token, "initial-cluster-token", "etcd-cluster", "the new cluster's token")
	f.StringVar(&peers, "initial-advertise-peer-urls", "http://localhost:2380", "this member's peer URLs")
	f.IntVar(&c.Partitions, "partitions", 0, "number of partition groups, 1 to 16, the same on all members (0: 4)")
	f.BoolVar(&c.SkipHashCheck, "skip-hash-check", false, "accept a file without checksum, such as a copy of a data directory's snap/db")
	f.Uint64Var(&bump, "bump-revision", 0, "how much to increase the revision, beyond all that the old cluster may have given out since the snapshot")
	f.BoolVar(&compacted, "mark-compacted", false, "mark the increased revision as compacted (required with --bump-revision, refused without)")
	return cmd
}

func (a *app) snapshotRestore(file string, c snapshot.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bar := a.progressBar("restoring")
	c.Progress, c.Logger = bar.show, a.logger()
	r, err := snapshot.Restore(ctx, file, c)
	bar.end()
	if err != nil {
		return interrupted(ctx, err)
	}
	fmt.Fprintf(a.out, "Restored %s as member %s of cluster %s, at revision %d, with %s\n", c.DataDir, r.Member, r.Cluster, r.Revision, partitionsText(r.Partitions))
	for _, d := range r.DroppedPins {
		fmt.Fprintln(a.out, d)
	}
	return nil
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &exit{exitInterrupted, fmt.Errorf("interrupted: %w", err)}
	}
	return err
}
