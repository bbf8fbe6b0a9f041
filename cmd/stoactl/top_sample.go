package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/top"
)

// sampler asks all servers of a cluster.
type sampler struct {
	app  *app
	any  *connection // to some of the servers
	http *http.Client
	urls []string // of --metrics-urls

	leader   *connection // that was asked last
	leaderID uint64
}

// newSampler uses the credentials of the command line for metrics, too.
func (a *app) newSampler(urls []string) (*sampler, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	cfg, err := a.clientConfig(c)
	if err != nil {
		return nil, err
	}
	direct := &http.Transport{TLSClientConfig: cfg.TLS, MaxIdleConnsPerHost: 1} // no proxy, as etcd's client
	return &sampler{app: a, any: c, http: &http.Client{Transport: direct}, urls: urls}, nil
}

func (s *sampler) close() {
	s.http.CloseIdleConnections()
	s.any.Close()
	if s.leader != nil {
		s.leader.Close()
	}
}

// sample fails if no server tells the members; a server that doesn't answer is part of the sample.
func (s *sampler) sample(ctx context.Context) (*top.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, s.app.o.command)
	defer cancel()
	list, err := s.any.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, s.any.explain(err)
	}
	sample := &top.Sample{Cluster: list.Header.GetClusterId(), Servers: s.servers(ctx, list.Members), Time: time.Now()}
	if sample.Partitions, err = s.partitions(ctx, sample.Leader(), list.Members); err != nil {
		sample.Trouble = append(sample.Trouble, fmt.Sprintf("hottest slots and prefixes aren't known: %v", err))
	}
	return sample, nil
}

// servers asks all members, or all --metrics-urls, for their metrics.
func (s *sampler) servers(ctx context.Context, members []*pb.Member) []top.Server {
	all := make([]top.Server, len(members))
	for i, m := range members {
		all[i] = top.Server{ID: m.ID, Name: m.Name, Trouble: "none of --metrics-urls is this server's"}
	}
	if len(s.urls) > 0 {
		for _, a := range s.ask(ctx, s.urls) {
			at := slices.IndexFunc(all, func(m top.Server) bool { return a.numbers != nil && m.ID == a.numbers.ID })
			if at >= 0 {
				all[at].Numbers = a.numbers
			}
		}
		return all
	}
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { all[i].Numbers, all[i].Trouble = s.member(ctx, m) })
	}
	wg.Wait()
	return all
}

// member asks one for its metrics, or says why there are none.
func (s *sampler) member(ctx context.Context, m *pb.Member) (*top.Numbers, string) {
	if len(m.ClientURLs) == 0 {
		return nil, "it hasn't started"
	}
	var why []string
	for _, a := range s.ask(ctx, m.ClientURLs) {
		switch {
		case a.err != nil:
			why = append(why, a.err.Error())
		case a.numbers.ID != m.ID:
			why = append(why, fmt.Sprintf("member %x answers at its client URL", a.numbers.ID))
		default:
			return a.numbers, ""
		}
	}
	return nil, strings.Join(why, "; ")
}

// answer is that of one URL.
type answer struct {
	numbers *top.Numbers
	err     error
}

func (s *sampler) ask(ctx context.Context, urls []string) []answer {
	answers := make([]answer, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { answers[i].numbers, answers[i].err = s.metrics(ctx, u) })
	}
	wg.Wait()
	return answers
}

// patience is how long a server may take for its metrics: others aren't shown before.
const patience = 2 * time.Second

// maxMetrics bounds what a server may answer, in bytes.
const maxMetrics = 64 << 20

func (s *sampler) metrics(ctx context.Context, url string) (*top.Numbers, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/metrics")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.URL, resp.Status)
	}
	return top.Parse(io.LimitReader(resp.Body, maxMetrics))
}

// partitions asks the leader, over a connection that lasts as long as it leads.
func (s *sampler) partitions(ctx context.Context, leader uint64, members []*pb.Member) (*stoapb.ListPartitionsResponse, error) {
	at := slices.IndexFunc(members, func(m *pb.Member) bool { return m.ID == leader })
	if at < 0 {
		return nil, errors.New("no server says that it leads")
	}
	if s.leaderID != leader {
		c, err := s.app.connect(members[at].ClientURLs...)
		if err != nil {
			return nil, err
		}
		if s.leader != nil {
			s.leader.Close()
		}
		s.leader, s.leaderID = c, leader
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := stoapb.NewPartitionsClient(s.leader.ActiveConnection()).List(ctx, &stoapb.ListPartitionsRequest{})
	return r, s.leader.explain(err)
}
