package byextension

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/recipes/overetcd"
	"github.com/stoa-kv/stoa/test/recipes/recipe"
	"github.com/stoa-kv/stoa/test/recipes/socket"
)

const (
	counterKey       = "/ctr"
	incrementKey     = "/ctr-increment"
	addKey           = "/queue/add"
	headKey          = "/queue/head"
	itemsPrefix      = "/queue/items/"
	enterPrefix      = "/barrier/enter/"
	herePrefix       = "/barrier/here/"
	readyKey         = "/barrier/ready"
	thresholdKey     = "/barrier/threshold"
	campaignPrefix   = "/election/campaign/"
	candidatesPrefix = "/election/candidates/"
)

// Kit is one participant.
type Kit struct {
	client *clientv3.Client
	lease  clientv3.LeaseID // the session, once an election has needed one
	tally  recipe.Tally
	end    func() error
}

// Dial makes a participant with one connection to one server.
func Dial(endpoint string, tap *socket.Tap) (*Kit, error) {
	c, err := overetcd.Connect(endpoint, tap)
	if err != nil {
		return nil, err
	}
	return &Kit{client: c, end: c.Close}, nil
}

// DialSession makes a participant of stoa's own client: one session, which finds the
// leader by itself. What the recipe ties to the participant's life goes with it.
func DialSession(ctx context.Context, endpoints []string, tap *socket.Tap) (*Kit, error) {
	c, err := client.New(client.Config{
		Endpoints:   endpoints,
		TTL:         overetcd.SessionTTL,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(tap.DialGRPC)},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", endpoints, err)
	}
	s, err := c.Session(ctx)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connecting to %v: %w", endpoints, err)
	}
	etcd := s.Etcd()
	// A wait ends with its event alone, which need not be in any order with others.
	etcd.Watcher = s.At(client.Fast).Watcher()
	overetcd.Hold(etcd)
	return &Kit{client: etcd, lease: s.ID(), end: c.Close}, nil
}

func (k *Kit) Tally() *recipe.Tally { return &k.tally }

func (k *Kit) Close() error { return k.end() }

// Reset empties the recipe's state by ordinary calls.
func (k *Kit) Reset(ctx context.Context, name string, participants int) error {
	var ops []clientv3.Op
	switch name {
	case "counter":
		ops = []clientv3.Op{clientv3.OpDelete(counterKey)}
	case "queue":
		ops = []clientv3.Op{clientv3.OpDelete(itemsPrefix, clientv3.WithPrefix())}
	case "barrier":
		ops = []clientv3.Op{
			clientv3.OpDelete(readyKey),
			clientv3.OpDelete(herePrefix, clientv3.WithPrefix()),
			clientv3.OpPut(thresholdKey, strconv.Itoa(participants)),
		}
	}
	for _, op := range ops {
		if _, err := k.client.Do(ctx, op); err != nil {
			return fmt.Errorf("resetting the %s: %w", name, err)
		}
	}
	return nil
}

// Counter is figure 5 (bottom).
func (k *Kit) Counter() recipe.Counter { return counter{k} }

type counter struct{ *Kit }

func (c counter) Increment(ctx context.Context) (int64, error) {
	resp, err := c.get(ctx, incrementKey)
	if err != nil {
		return 0, fmt.Errorf("incrementing: %w", err)
	}
	if len(resp.Kvs) != 1 {
		return 0, fmt.Errorf("incrementing: an answer with %d key-values", len(resp.Kvs))
	}
	return strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
}

func (c counter) Value(ctx context.Context) (int64, error) {
	resp, err := c.get(ctx, counterKey)
	if err != nil {
		return 0, fmt.Errorf("reading the counter: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
}

func (k *Kit) get(ctx context.Context, key string) (*clientv3.GetResponse, error) {
	k.tally.Calls.Add(1)
	return k.client.Get(ctx, key)
}

// Queue is figure 7 (right).
func (k *Kit) Queue() recipe.Queue { return queue{k} }

type queue struct{ *Kit }

func (q queue) Add(ctx context.Context, element string) error {
	q.tally.Calls.Add(1)
	if _, err := q.client.Put(ctx, addKey, element); err != nil {
		return fmt.Errorf("adding %s: %w", element, err)
	}
	return nil
}

func (q queue) Remove(ctx context.Context) (string, error) {
	for {
		resp, err := q.get(ctx, headKey)
		if err != nil {
			return "", fmt.Errorf("removing the head: %w", err)
		}
		if len(resp.Kvs) == 1 {
			return string(resp.Kvs[0].Value), nil
		}
		q.tally.Retries.Add(1)
	}
}

// Barrier is figure 9 (right). The threshold is in the service.
func (k *Kit) Barrier(id string, _ int) recipe.Barrier { return barrier{k, id} }

type barrier struct {
	*Kit
	id string
}

func (b barrier) Enter(ctx context.Context) error {
	if err := b.block(ctx, enterPrefix+b.id); err != nil {
		return fmt.Errorf("entering the barrier: %w", err)
	}
	return nil
}

// Election is figure 11 (right).
func (k *Kit) Election(ctx context.Context, id string) (recipe.Election, error) {
	if k.lease == 0 {
		var err error
		if k.lease, err = overetcd.Session(ctx, k.client); err != nil {
			return nil, err
		}
	}
	return election{k, fmt.Sprintf("%s-%x", id, int64(k.lease))}, nil
}

type election struct {
	*Kit
	id string
}

func (e election) Campaign(ctx context.Context) error {
	if err := e.block(ctx, campaignPrefix+e.id); err != nil {
		return fmt.Errorf("campaigning: %w", err)
	}
	return nil
}

func (e election) Resign(ctx context.Context) error {
	e.tally.Calls.Add(1)
	if _, err := e.client.Delete(ctx, candidatesPrefix+e.id); err != nil {
		return fmt.Errorf("resigning: %w", err)
	}
	return nil
}

// block opens a watch and waits for its first event.
func (k *Kit) block(ctx context.Context, key string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.tally.Calls.Add(1)
	for resp := range k.client.Watch(ctx, key, clientv3.WithFilterDelete()) {
		if err := resp.Err(); err != nil {
			return err
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("the watch ended without an event")
}
