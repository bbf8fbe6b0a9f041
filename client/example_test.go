package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// The examples run on a server of their own, which starts when the first of them needs
// it.
var (
	endpoints = sync.OnceValue(startServer)
	stop      = func() {}
)

func TestMain(m *testing.M) {
	code := m.Run()
	stop()
	os.Exit(code)
}

func startServer() []string {
	bin, err := process.Choose("stoa")
	if err != nil {
		log.Fatal(err)
	}
	dir, err := process.TempDir("client-examples")
	if err != nil {
		log.Fatal(err)
	}
	c, err := process.Start(context.Background(), process.Spec{Binary: bin, Partitions: 2, Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	stop = func() {
		_ = c.Close()
		_ = os.RemoveAll(dir)
	}
	return c.Endpoints()
}

// connect stands for
//
//	client.New(client.Config{Endpoints: []string{"127.0.0.1:2379"}})
func connect() *client.Client {
	c, err := client.New(client.Config{Endpoints: endpoints()})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func open(ctx context.Context, c *client.Client, opts ...client.SessionOption) *client.Session {
	s, err := c.Session(ctx, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return s
}

func Example() {
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: endpoints()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	// As with etcd's client, which a Client is.
	if _, err := c.Put(ctx, "/service/db", "10.0.0.7"); err != nil {
		log.Fatal(err)
	}

	// Over a session, which ties a key to its life.
	s, err := c.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Put(ctx, "/service/web", "10.0.0.9", client.Ephemeral()); err != nil {
		log.Fatal(err)
	}
	r, err := s.Get(ctx, "/service/", clientv3.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range r.Kvs {
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	if err := s.Close(ctx); err != nil {
		log.Fatal(err)
	}
	r, err = c.Get(ctx, "/service/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	fmt.Println(r.Count, err)
	// Output:
	// /service/db = 10.0.0.7
	// /service/web = 10.0.0.9
	// 1 <nil>
}

// A client of etcd's package has the name by which extensions know it from Identify,
// and sessions over it have it too.
func ExampleOf() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints(), DialOptions: client.Identify("worker-7")})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	s := open(ctx, client.Of(etcd))
	defer s.Close(ctx)
	_, err = s.Put(ctx, "/of", "a session over etcd's client")
	fmt.Println(err)
	// Output: <nil>
}

// Requests take effect in the order in which they were sent, so a series needs no
// waiting: when the last one has taken effect, all have.
func ExampleSession_PutAsync() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c)
	for i := range 3 {
		s.PutAsync(fmt.Sprint("/data/", i), "new")
	}
	ready := s.PutAsync("/ready", "yes")
	if _, err := ready.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := s.Get(ctx, "/data/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	fmt.Println(r.Count, err)
	// Output: 3 <nil>
}

// A token carries what one session has seen to another, also at another member.
func ExampleSession_Token() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	writer := open(ctx, c)
	reader := open(ctx, c, client.WithLevel(client.Causal))

	if _, err := writer.Put(ctx, "/config", "v2"); err != nil {
		log.Fatal(err)
	}
	token := writer.Token() // passed on by the application
	reader.See(token)
	r, err := reader.Get(ctx, "/config")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.Kvs[0].Value)
	// Output: v2
}

// Most reads of a session may be answered by its member alone, and some must not.
func ExampleReader_At() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c, client.WithLevel(client.Causal))
	if _, err := s.Put(ctx, "/owner", "ann"); err != nil {
		log.Fatal(err)
	}
	mine, err := s.Get(ctx, "/owner") // at least what this session has put
	if err != nil {
		log.Fatal(err)
	}
	now, err := s.At(client.Strict).Get(ctx, "/owner") // what any client has put before
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s\n", mine.Kvs[0].Value, now.Kvs[0].Value)
	// Output: ann ann
}

// A watch shows everything behind its opening, once, also over broken
// connections.
func ExampleReader_Watch() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c)
	w, err := s.Watch(ctx, "/alarms/", clientv3.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	s.PutAsync("/alarms/door", "open")
	s.DeleteAsync("/alarms/door")
	for seen := 0; seen < 2; {
		n, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range n.Events {
			fmt.Printf("%s %s\n", e.Type, e.Kv.Key)
			seen++
		}
	}
	w.Close()
	_, err = w.Next(ctx)
	fmt.Println(errors.Is(err, client.ErrWatchClosed))
	// Output:
	// PUT /alarms/door
	// DELETE /alarms/door
	// true
}

// A feed shows the events of several watches in the order of their revisions.
func ExampleFeed() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c)
	feed := client.NewFeed()
	for _, key := range []string{"/jobs/", "/workers/"} {
		if _, err := s.WatchInto(ctx, feed, key, clientv3.WithPrefix()); err != nil {
			log.Fatal(err)
		}
	}
	s.PutAsync("/workers/7", "idle")
	s.PutAsync("/jobs/1", "for 7")
	for range 2 {
		n, err := feed.Next(ctx)
		if err != nil {
			log.Fatal(err)
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
	s := open(ctx, c)
	b := s.Batch(client.Independent())
	for i := range 100 {
		b.Put(fmt.Sprintf("/shard%d/key", i), "v")
	}
	if err := b.Run(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := s.Get(ctx, "/shard", clientv3.WithPrefix(), clientv3.WithCountOnly())
	fmt.Println(r.Count, err)
	// Output: 100 <nil>
}

// Code that was written for etcd runs over a session: here etcd's own lock, which ends
// with the session.
func ExampleSession_Etcd() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c)
	defer s.Close(ctx)
	life, err := concurrency.NewSession(s.Etcd(), concurrency.WithLease(s.ID()))
	if err != nil {
		log.Fatal(err)
	}
	lock := concurrency.NewMutex(life, "/lock/")
	fmt.Println(lock.Lock(ctx))
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// <nil>
	// <nil>
}

func ExampleReader_KV() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	s := open(ctx, c)
	var kv clientv3.KV = s.KV()
	txn, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Version("/leader"), "=", 0)).
		Then(clientv3.OpPut("/leader", "mine", client.Ephemeral())).
		Commit()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(txn.Succeeded)
	// Output: true
}

// A key can't be tied to the life of a session where there is none.
func ExampleEphemeral() {
	c := connect()
	defer c.Close()
	_, err := c.Put(context.Background(), "/service/web", "10.0.0.9", client.Ephemeral())
	fmt.Println(errors.Is(err, client.ErrNoSession))
	// Output: true
}
