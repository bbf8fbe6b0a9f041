package client_test

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// connect stands for
//
//	client.New(client.Config{Endpoints: []string{"127.0.0.1:2379"}})
//
// so that the examples run where no server does.
func connect() *client.Client { return newFake(exampleTB{}, 1).client() }

// exampleTB is a test that nobody runs.
type exampleTB struct{ testing.TB }

func (exampleTB) Cleanup(func())            {}
func (exampleTB) FailNow()                  { panic("example failed") }
func (exampleTB) Helper()                   {}
func (exampleTB) Errorf(f string, a ...any) { fmt.Printf(f, a...) }

func Example() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, err := c.Session(ctx)
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	if _, err := s.Put(ctx, "/service/db", "10.0.0.7", client.Ephemeral()); err != nil {
		panic(err)
	}
	r, err := s.Get(ctx, "/service/", clientv3.WithPrefix())
	if err != nil {
		panic(err)
	}
	for _, kv := range r.Kvs {
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	// Output: /service/db = 10.0.0.7
}

// Requests take effect in the order in which they were sent, so a series needs no
// waiting: when the last one has taken effect, all have.
func ExampleSession_PutAsync() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, err := c.Session(ctx)
	if err != nil {
		panic(err)
	}
	for i := range 3 {
		s.PutAsync(fmt.Sprint("/data/", i), "new")
	}
	ready := s.PutAsync("/ready", "yes")
	if _, err := ready.Wait(ctx); err != nil {
		panic(err)
	}
	r, _ := s.Get(ctx, "/data/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	fmt.Println(r.Count)
	// Output: 3
}

// A token carries what one session has seen to another, whichever member that one
// talks to.
func ExampleSession_Token() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	writer, _ := c.Session(ctx)
	reader, _ := c.Session(ctx, client.WithLevel(client.Causal))

	if _, err := writer.Put(ctx, "/config", "v2"); err != nil {
		panic(err)
	}
	token := writer.Token() // travels over whatever the two have between them
	reader.See(token)
	r, _ := reader.Get(ctx, "/config")
	fmt.Printf("%s\n", r.Kvs[0].Value)
	// Output: v2
}

// A feed shows the events of several watches in the order of their revisions.
func ExampleFeed() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, _ := c.Session(ctx)
	feed := client.NewFeed()
	for _, key := range []string{"/jobs/", "/workers/"} {
		if _, err := s.WatchInto(ctx, feed, key, clientv3.WithPrefix()); err != nil {
			panic(err)
		}
	}
	s.PutAsync("/workers/7", "idle")
	s.PutAsync("/jobs/1", "for 7")
	for range 2 {
		n, err := feed.Next(ctx)
		if err != nil {
			panic(err)
		}
		for _, e := range n.Events {
			fmt.Printf("%s %s\n", e.Type, e.Kv.Key)
		}
	}
	// Output:
	// PUT /workers/7
	// PUT /jobs/1
}

// Operations that don't depend on each other may be sent partition by partition.
func ExampleReader_Batch() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, _ := c.Session(ctx)
	b := s.Batch(client.Independent())
	for i := range 100 {
		b.Put(fmt.Sprintf("/shard%d/key", i), "v")
	}
	if err := b.Run(ctx); err != nil {
		panic(err)
	}
	r, _ := s.Get(ctx, "/shard", clientv3.WithPrefix(), clientv3.WithCountOnly())
	fmt.Println(r.Count)
	// Output: 100
}

// Code that was written for etcd runs over a session.
func ExampleReader_KV() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s, _ := c.Session(ctx)
	var kv clientv3.KV = s.KV()
	txn, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Version("/lock"), "=", 0)).
		Then(clientv3.OpPut("/lock", "mine", client.Ephemeral())).
		Commit()
	if err != nil {
		panic(err)
	}
	fmt.Println(txn.Succeeded)
	// Output: true
}
