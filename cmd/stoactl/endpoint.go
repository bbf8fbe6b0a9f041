package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) endpointCommand() *cobra.Command {
	var cluster bool
	cmd := &cobra.Command{Use: "endpoint <subcommand>", Short: "Endpoint related commands"}
	cmd.PersistentFlags().BoolVar(&cluster, "cluster", false, "use all endpoints from the cluster member list")
	cmd.AddCommand(
		&cobra.Command{
			Use: "health", Short: "Checks the healthiness of endpoints specified in --endpoints flag", Args: noArgs,
			RunE: func(*cobra.Command, []string) error { return a.endpointHealth(cluster) },
		},
		&cobra.Command{
			Use: "status", Short: "Prints out the status of endpoints specified in --endpoints flag", Args: noArgs,
			RunE: func(*cobra.Command, []string) error { return a.endpointStatus(cluster) },
		}, a.hashKVCommand(&cluster))
	return cmd
}

// targets are the endpoints to ask, one by one.
func (a *app) targets(cluster bool) (eps []string, err error) {
	if !cluster {
		return a.o.endpoints, nil
	}
	err = a.withClient(func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("failed to fetch endpoints from etcd cluster member list: %w", err)
		}
		for _, m := range r.Members {
			eps = append(eps, m.ClientURLs...)
		}
		return nil
	})
	return eps, err
}

type endpointHealth struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`
}

func (a *app) endpointHealth(cluster bool) error {
	eps, err := a.targets(cluster)
	if err != nil {
		return err
	}
	all := make([]endpointHealth, len(eps))
	var wg sync.WaitGroup
	for i, ep := range eps {
		wg.Go(func() {
			began := time.Now()
			err := a.checkEndpoint(ep)
			all[i] = endpointHealth{Endpoint: ep, Health: err == nil, Took: time.Since(began).String()}
			if err != nil {
				all[i].Error = err.Error()
			}
		})
	}
	wg.Wait()
	if err := a.show(healthView(all, a)); err != nil {
		return err
	}
	for _, h := range all {
		if !h.Health {
			return errors.New("unhealthy cluster")
		}
	}
	return nil
}

// checkEndpoint requires a linearizable read and no alarm. A refusal to show
// the key proves as much as the key.
func (a *app) checkEndpoint(ep string) error {
	c, err := a.connect(ep)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	if _, err := c.Get(ctx, "health"); err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		return c.explain(err)
	}
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("unable to fetch the alarm list: %w", c.explain(err))
	}
	if len(alarms.Alarms) == 0 {
		return nil
	}
	text := "Active Alarm(s): "
	for _, m := range alarms.Alarms {
		text += m.Alarm.String() + " "
	}
	return errors.New(text)
}

func healthView(all []endpointHealth, a *app) view {
	return view{
		json: all,
		simple: func(p *printer) {
			for _, h := range all {
				if h.Health {
					p.printf("%s is healthy: successfully committed proposal: took = %v\n", h.Endpoint, h.Took)
					continue
				}
				fmt.Fprintf(a.errs, "%s is unhealthy: failed to commit proposal: %v\n", h.Endpoint, h.Error)
			}
		},
		fields: func(p *printer) {
			for _, h := range all {
				p.printf("\"Endpoint\" : %q\n", h.Endpoint)
				p.line(`"Health" :`, h.Health)
				p.line(`"Took" :`, h.Took)
				p.line(`"Error" :`, h.Error)
				p.line()
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, h := range all {
				rows = append(rows, []string{h.Endpoint, strconv.FormatBool(h.Health), h.Took, h.Error})
			}
			return []string{"endpoint", "health", "took", "error"}, rows
		},
	}
}

type endpointStatus struct {
	Endpoint string                   `json:"Endpoint"`
	Status   *clientv3.StatusResponse `json:"Status"`
}

func (a *app) endpointStatus(cluster bool) error {
	return ofEach(a, cluster, "status", statusView, func(ctx context.Context, c *connection, ep string) (endpointStatus, error) {
		r, err := c.Status(ctx, ep)
		return endpointStatus{ep, r}, err
	})
}

// ofEach asks one endpoint after the other, shows what they answer, and fails if one of them didn't.
func ofEach[T any](a *app, cluster bool, what string, shown func([]T) view, ask func(context.Context, *connection, string) (T, error)) error {
	eps, err := a.targets(cluster)
	if err != nil {
		return err
	}
	var all []T
	var failed error
	for _, ep := range eps {
		r, err := askEndpoint(a, ep, ask)
		if err != nil {
			fmt.Fprintf(a.errs, "Failed to get the %s of endpoint %s (%v)\n", what, ep, err)
			failed = errors.New("some endpoints did not answer")
			continue
		}
		all = append(all, r)
	}
	if err := a.show(shown(all)); err != nil {
		return err
	}
	return failed
}

func askEndpoint[T any](a *app, ep string, ask func(context.Context, *connection, string) (T, error)) (r T, err error) {
	c, err := a.connect(ep)
	if err != nil {
		return r, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	r, err = ask(ctx, c, ep)
	return r, c.explain(err)
}

func statusView(all []endpointStatus) view {
	return view{
		json: all,
		fields: func(p *printer) {
			for _, s := range all {
				r := s.Status
				p.header(r.Header)
				p.printf("\"Version\" : %q\n", r.Version)
				p.printf("\"StorageVersion\" : %q\n", r.StorageVersion)
				p.line(`"DBSize" :`, r.DbSize)
				p.line(`"DBSizeInUse" :`, r.DbSizeInUse)
				p.line(`"DBSizeQuota" :`, r.DbSizeQuota)
				p.line(`"Leader" :`, r.Leader)
				p.line(`"IsLearner" :`, r.IsLearner)
				p.line(`"RaftIndex" :`, r.RaftIndex)
				p.line(`"RaftAppliedIndex" :`, r.RaftAppliedIndex)
				p.line(`"Errors" :`, r.Errors)
				p.printf("\"Endpoint\" : %q\n", s.Endpoint)
				downgrade := (*pb.StatusResponse)(r).GetDowngradeInfo()
				p.printf("\"DowngradeTargetVersion\" : %q\n", downgrade.GetTargetVersion())
				p.line(`"DowngradeEnabled" :`, downgrade.GetEnabled())
				p.line()
			}
		},
		table: func() ([]string, [][]string) {
			head := []string{"endpoint", "ID", "version", "storage version", "db size", "in use", "percentage not in use", "quota",
				"is leader", "is learner", "raft term", "raft index", "raft applied index", "errors", "downgrade target version", "downgrade enabled"}
			var rows [][]string
			for _, s := range all {
				rows = append(rows, statusRow(s))
			}
			return head, rows
		},
	}
}

func statusRow(s endpointStatus) []string {
	r := s.Status
	unused := int64(0)
	if r.DbSize > 0 {
		unused = 100 - r.DbSizeInUse*100/r.DbSize
	}
	downgrade := (*pb.StatusResponse)(r).GetDowngradeInfo()
	return []string{
		s.Endpoint, fmt.Sprintf("%x", r.Header.GetMemberId()), r.Version, r.StorageVersion,
		bytesOf(r.DbSize), bytesOf(r.DbSizeInUse), fmt.Sprintf("%d%%", unused), bytesOf(r.DbSizeQuota),
		strconv.FormatBool(r.Leader == r.Header.GetMemberId()), strconv.FormatBool(r.IsLearner),
		fmt.Sprint(r.RaftTerm), fmt.Sprint(r.RaftIndex), fmt.Sprint(r.RaftAppliedIndex), strings.Join(r.Errors, ", "),
		downgrade.GetTargetVersion(), strconv.FormatBool(downgrade.GetEnabled()),
	}
}
