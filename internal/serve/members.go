package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// clusterHeader has the ID of the cluster beside its list of members.
const clusterHeader = "X-Etcd-Cluster-ID"

// fetchLimit bounds one attempt to get a list of members.
const fetchLimit = 3 * time.Second

// FetchMembers gets the list of members from the peer page of a server, at the first of its
// peer URLs that answers. The list is empty if the server knows of none yet. conf is for
// https and unixs URLs.
func FetchMembers(ctx context.Context, conf *tls.Config, peerURLs []string) (cluster uint64, list []*pb.Member, err error) {
	var errs []error
	for _, raw := range peerURLs {
		cluster, list, err = fetchMembers(ctx, conf, raw)
		if err == nil {
			return cluster, list, nil
		}
		errs = append(errs, fmt.Errorf("fetching the members from %s: %w", raw, err))
	}
	return 0, nil, errors.Join(errs...)
}

func fetchMembers(ctx context.Context, conf *tls.Config, raw string) (cluster uint64, list []*pb.Member, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return 0, nil, err
	}
	rt := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true} // and no proxy inside a cluster
	if strings.HasPrefix(u.Scheme, "unix") {
		socket := u.Host + u.Path
		rt.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
		u = &url.URL{Scheme: strings.Replace(u.Scheme, "unix", "http", 1), Host: "localhost"}
	}
	client := http.Client{
		Transport: rt, Timeout: fetchLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("members").String(), nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, nil, fmt.Errorf("the server answers %s", answer.Status)
	}
	if cluster, err = strconv.ParseUint(answer.Header.Get(clusterHeader), 16, 64); err != nil {
		return 0, nil, fmt.Errorf("parse %s: %w", clusterHeader, err)
	}
	var members []member
	if err := json.NewDecoder(answer.Body).Decode(&members); err != nil {
		return 0, nil, fmt.Errorf("parse the list of members: %w", err)
	}
	for _, m := range members {
		list = append(list, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	return cluster, list, nil
}
