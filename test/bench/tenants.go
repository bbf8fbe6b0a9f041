package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

const (
	attacker, attackedPrefix = "attacker", "/attacker/"

	// attackers put at this rate each, whatever they are answered.
	attackers    = 12
	attackerPace = 500
	// attackerRate is what their quota leaves them, all together, on each server.
	attackerRate = 100
	// A tenant beside them gets at this rate.
	tenantPace = 200
)

// measureTenants measures the gets of one tenant while another does all it can, without a quota and
// with one.
func measureTenants(p *plan) (s section, err error) {
	nodes := slices.Max(p.nodes)
	b, err := newBench(p, subject{name: "stoa" + authSuffix, bin: p.stoa, auth: true}, nodes)
	if err != nil {
		return s, err
	}
	defer func() { end([]*bench{b}, &err) }()
	attack, err := b.attack()
	if err != nil {
		return s, err
	}
	tenant := pacedUnary(b, "get", 1, tenantPace)
	var alone, free, limited attacked
	for range p.rounds {
		for _, beside := range []struct {
			into *attacked
			rate int64 // of the quota; 0: there is none
			on   bool
		}{{&alone, 0, false}, {&free, 0, true}, {&limited, attackerRate, true}} {
			if err := b.limit(beside.rate); err != nil {
				return s, err
			}
			if err := beside.into.round(p, tenant, attack, beside.on); err != nil {
				return s, err
			}
		}
	}
	s.rows = [][]string{{"beside the tenant", "attackers' puts/s", "of these refused", "p50", "p99", "machine's CPU in use", "p50 to alone", "p99 to alone"}}
	for _, row := range [][]string{alone.row("nobody", &alone), free.row("attackers without a quota", &alone), limited.row("attackers with a quota", &alone)} {
		s.rows = append(s.rows, row)
		fmt.Fprintln(os.Stderr, strings.Join(row, "  "))
	}
	s.verdicts = []verdict{atMost("tenants, gets beside attackers with a quota: p50 over that alone", compare(limited.tenant, alone.tenant, byP50), unchanged)}
	s.text = fmt.Sprintf("%d nodes, users and roles, %d B. One tenant gets at %d/s, each get sent at its time. %d attackers, with another role, put at %d/s each in the same way, "+
		"whether or not they are refused. With a quota their role has %d requests per second on each server. %d rounds of %v.",
		nodes, p.value, tenantPace, attackers, attackerPace, attackerRate, p.rounds, p.length)
	return s, nil
}

// attacked is what one tenant measured, by round, and the puts of the others.
type attacked struct {
	tenant        []sample
	puts, refused []float64 // per second
}

func (a *attacked) round(p *plan, tenant contender, attack *load, on bool) error {
	if !on {
		got, err := p.measure(tenant.cluster, tenant.start)
		a.tenant = append(a.tenant, got)
		return err
	}
	before := attack.failed.Load()
	got, done, err := p.besides(tenant, contender{start: func() (*running, error) { return attack.start("put", attackers), nil }})
	if err != nil {
		return err
	}
	total := float64(attackers * attackerPace)
	if attack.failed.Load() == before {
		total = done
	}
	a.tenant, a.puts, a.refused = append(a.tenant, got), append(a.puts, total), append(a.refused, 1-done/total)
	return nil
}

func (a *attacked) row(name string, alone *attacked) []string {
	m := median(a.tenant)
	row := []string{name, "", "", round(m.p50).String(), round(m.p99).String(), fmt.Sprintf("%.0f %%", m.busy*100), "", ""}
	if a != alone {
		row[1], row[2] = fmt.Sprintf("%.0f", middle(a.puts)), fmt.Sprintf("%.0f %%", middle(a.refused)*100)
		row[6], row[7] = compare(a.tenant, alone.tenant, byP50).String(), compare(a.tenant, alone.tenant, byP99).String()
	}
	return row
}

// attack adds the attackers' user, and returns their load.
func (b *bench) attack() (*load, error) {
	l := *b.load
	l.conns, l.pace, l.failed = attackers, attackers*attackerPace, new(atomic.Int64)
	l.requests = map[string][][]byte{}
	for i := range b.plan.keys {
		m, err := proto.Marshal(&pb.PutRequest{Key: []byte(attackedPrefix + keyName(i)), Value: bytes.Repeat([]byte{'x'}, b.plan.value)})
		if err != nil {
			return nil, fmt.Errorf("encoding the attackers' requests: %w", err)
		}
		l.requests["put"] = append(l.requests["put"], m)
	}
	return &l, b.asRoot(func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.RoleAdd(ctx, attacker); err != nil {
			return err
		}
		if _, err := c.RoleGrantPermission(ctx, attacker, attackedPrefix, clientv3.GetPrefixRangeEnd(attackedPrefix), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			return err
		}
		if _, err := c.UserAdd(ctx, attacker, benchPassword); err != nil {
			return err
		}
		if _, err := c.UserGrantRole(ctx, attacker, attacker); err != nil {
			return err
		}
		resp, err := c.Authenticate(ctx, attacker, benchPassword)
		if err == nil {
			l.token = resp.Token
		}
		return err
	})
}

// limit sets the attackers' rate, or removes their quota.
func (b *bench) limit(rate int64) error {
	return b.asRoot(func(ctx context.Context, c *clientv3.Client) error {
		quotas := stoapb.NewQuotasClient(c.ActiveConnection())
		if rate > 0 {
			_, err := quotas.Set(ctx, &stoapb.SetQuotaRequest{Quota: &stoapb.Quota{Role: attacker, MaxRate: rate}})
			return err
		}
		list, err := quotas.List(ctx, &stoapb.ListQuotasRequest{})
		if err != nil || len(list.Quotas) == 0 {
			return err
		}
		_, err = quotas.Remove(ctx, &stoapb.RemoveQuotaRequest{Role: attacker})
		return err
	})
}
