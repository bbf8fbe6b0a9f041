package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3/command"
)

func (a *app) memberCommand() *cobra.Command {
	var consistency string
	cmd := &cobra.Command{Use: "member <subcommand>", Short: "Membership related commands"}
	list := &cobra.Command{
		Use: "list", Short: "Lists all members in the cluster", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			var opts []clientv3.OpOption
			switch consistency {
			case "l":
			case "s":
				opts = append(opts, clientv3.WithSerializable())
			default:
				return badFeature("unknown consistency flag %q: there are l and s", consistency)
			}
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.MemberList(ctx, opts...)
				if err != nil {
					return err
				}
				return a.show(memberView(r, a.o.hex))
			})
		},
	}
	list.Flags().StringVar(&consistency, "consistency", "l", "Linearizable(l) or Serializable(s)")
	cmd.AddCommand(list)
	cmd.AddCommand(a.mounted(command.NewMemberAddCommand(), command.NewMemberRemoveCommand(), command.NewMemberUpdateCommand(), command.NewMemberPromoteCommand())...)
	return cmd
}

func memberView(r *clientv3.MemberListResponse, hex bool) view {
	shown := any(r)
	if hex {
		shown = hexMembers(r)
	}
	return view{
		json: shown, protobuf: (*pb.MemberListResponse)(r),
		fields: func(p *printer) {
			p.header(r.Header)
			for _, m := range r.Members {
				p.line(`"ID" :`, p.id(m.ID))
				p.printf("\"Name\" : %q\n", m.Name)
				for _, u := range m.PeerURLs {
					p.printf("\"PeerURL\" : %q\n", u)
				}
				for _, u := range m.ClientURLs {
					p.printf("\"ClientURL\" : %q\n", u)
				}
				p.line(`"IsLearner" :`, m.IsLearner)
				p.line()
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, m := range r.Members {
				status := "started"
				if m.Name == "" {
					status = "unstarted"
				}
				rows = append(rows, []string{fmt.Sprintf("%x", m.ID), status, m.Name,
					strings.Join(m.PeerURLs, ","), strings.Join(m.ClientURLs, ","), strconv.FormatBool(m.IsLearner)})
			}
			return []string{"ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"}, rows
		},
	}
}

// hexMembers has the IDs in hex, as everywhere else.
func hexMembers(r *clientv3.MemberListResponse) any {
	type header struct {
		ClusterID string `json:"cluster_id"`
		MemberID  string `json:"member_id"`
		Revision  int64  `json:"revision,omitempty"`
		RaftTerm  uint64 `json:"raft_term,omitempty"`
	}
	type member struct {
		ID         string   `json:"ID"`
		Name       string   `json:"name,omitempty"`
		PeerURLs   []string `json:"peerURLs,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
		IsLearner  bool     `json:"isLearner,omitempty"`
	}
	out := struct {
		Header  header   `json:"header"`
		Members []member `json:"members"`
	}{Header: header{
		ClusterID: fmt.Sprintf("%x", r.Header.GetClusterId()), MemberID: fmt.Sprintf("%x", r.Header.GetMemberId()),
		Revision: r.Header.GetRevision(), RaftTerm: r.Header.GetRaftTerm(),
	}}
	for _, m := range r.Members {
		out.Members = append(out.Members, member{fmt.Sprintf("%x", m.ID), m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner})
	}
	return out
}
