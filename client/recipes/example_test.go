package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/recipes"
	"github.com/stoa-kv/stoa/test/process"
)

// cli is a client of the server that the examples run on.
var cli *client.Client

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	bin, err := process.UnderTest()
	if err != nil {
		log.Print(err)
		return 1
	}
	if !bin.Stoa {
		log.Print("etcd runs no extensions")
		return 0
	}
	dir, err := process.TempDir("recipes")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	c, err := process.Start(context.Background(), process.Spec{Binary: bin, Partitions: 2, Dir: dir})
	if err != nil {
		log.Print(err)
		return 1
	}
	defer c.Close()
	cli, err = client.New(client.Config{Endpoints: c.Endpoints(), ClientID: "example"})
	if err != nil {
		log.Print(err)
		return 1
	}
	defer cli.Close()
	return m.Run()
}

// begin registers the recipes of an example.
func begin(names ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	if err := recipes.Register(ctx, cli, names...); err != nil {
		log.Fatal(err)
	}
	return ctx, cancel
}

func grant(ctx context.Context) clientv3.LeaseID {
	l, err := cli.Grant(ctx, 60)
	if err != nil {
		log.Fatal(err)
	}
	return l.ID
}

func ExampleRegisterAt() {
	ctx, cancel := begin()
	defer cancel()
	if err := recipes.RegisterAt(ctx, cli, "jobs", "queue", "/jobs/"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(recipes.NewQueue(cli, "/jobs/").Add(ctx, "sweep"))
	// Output: 1 <nil>
}

func ExampleCounter() {
	ctx, cancel := begin("counter")
	defer cancel()
	visits := recipes.NewCounter(cli, "", "visits")
	fmt.Println(visits.Add(ctx, 1))
	fmt.Println(visits.Add(ctx, 10))
	fmt.Println(visits.Value(ctx))

	foreign, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: "another"})
	if err != nil {
		log.Fatal(err)
	}
	defer foreign.Close()
	_, err = recipes.NewCounter(foreign, "", "visits").Add(ctx, 1)
	fmt.Println(errors.Is(err, recipes.ErrUnhandled))
	// Output:
	// 1 <nil>
	// 11 <nil>
	// 11 <nil>
	// true
}

func ExampleQueue() {
	ctx, cancel := begin("queue")
	defer cancel()
	q := recipes.NewQueue(cli, "")
	fmt.Println(q.Add(ctx, "first"))
	fmt.Println(q.Add(ctx, "second"))
	fmt.Println(q.Remove(ctx))

	task, err := q.Take(ctx, "worker-7", grant(ctx)) // would wait if there were none
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.Element)
	fmt.Println(task.Done(ctx))

	_, err = q.Remove(ctx)
	fmt.Println(errors.Is(err, recipes.ErrEmpty))
	// Output:
	// 1 <nil>
	// 2 <nil>
	// first <nil>
	// second
	// <nil>
	// true
}

func ExampleBarrier() {
	ctx, cancel := begin("barrier")
	defer cancel()
	b := recipes.NewBarrier(cli, "")
	if err := b.SetThreshold(ctx, 2); err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	for _, id := range []string{"a", "b"} {
		go func() {
			err := b.Enter(ctx, id, 0)
			// Here both have entered.
			if err == nil {
				err = b.Leave(ctx, id)
			}
			// Here both have left.
			done <- err
		}()
	}
	fmt.Println(<-done, <-done)
	// Output: <nil> <nil>
}

func ExampleBarrier_Close() {
	ctx, cancel := begin("barrier")
	defer cancel()
	b := recipes.NewBarrier(cli, "")
	if err := b.SetThreshold(ctx, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Enter(ctx, "a", 0)) // alone, and so enough
	if err := b.SetThreshold(ctx, 2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Enter(ctx, "b", 0)) // it is open

	fmt.Println(b.Close(ctx))
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	fmt.Println(errors.Is(b.Enter(short, "c", 0), context.DeadlineExceeded)) // closed, and a and b don't count any more
	fmt.Println(b.Close(ctx))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true
	// <nil>
}

// The barrier is entered without a lease of its own, so that of the context counts.
func ExampleWithLease() {
	ctx, cancel := begin("barrier")
	defer cancel()
	b, lease := recipes.NewBarrier(cli, ""), grant(ctx)
	if err := b.SetThreshold(ctx, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Enter(recipes.WithLease(ctx, lease), "ann", 0))
	here, err := cli.Get(ctx, "/barrier/here/ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(clientv3.LeaseID(here.Kvs[0].Lease) == lease)

	if _, err = cli.Revoke(ctx, lease); err != nil {
		log.Fatal(err)
	}
	here, err = cli.Get(ctx, "/barrier/here/ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(here.Count)
	// Output:
	// <nil>
	// true
	// 0
}

func ExampleElection() {
	ctx, cancel := begin("election")
	defer cancel()
	e := recipes.NewElection(cli, "", "alice", grant(ctx))
	leadership, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Leader(ctx))
	select {
	case <-leadership.Lost():
		log.Fatal("lost at once")
	default: // lead, and pass on leadership.Revision
	}
	fmt.Println(leadership.Resign(ctx))
	_, err = e.Leader(ctx)
	fmt.Println(errors.Is(err, recipes.ErrNoLeader))
	// Output:
	// alice <nil>
	// <nil>
	// true
}

func ExampleSemaphore() {
	ctx, cancel := begin("semaphore")
	defer cancel()
	lock := recipes.NewSemaphore(cli, "", "lock")
	if err := lock.SetLimit(ctx, 1); err != nil {
		log.Fatal(err)
	}
	fence, err := lock.Acquire(ctx, "ann", grant(ctx))
	fmt.Println(fence > 0, err)
	fmt.Println(lock.TryAcquire(ctx, "bob", grant(ctx)))
	fmt.Println(lock.Release(ctx, "ann"))
	fmt.Println(lock.TryAcquire(ctx, "bob", grant(ctx)))
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// true <nil>
}

func ExampleRateLimiter() {
	ctx, cancel := begin("ratelimit")
	defer cancel()
	mails := recipes.NewRateLimiter(cli, "", "mails", 24*time.Hour)
	if err := mails.SetLimit(ctx, 3); err != nil {
		log.Fatal(err)
	}
	fmt.Println(mails.Take(ctx, 2))
	fmt.Println(mails.Take(ctx, 2))
	// Output:
	// 1 true <nil>
	// 0 false <nil>
}

func ExampleTree() {
	ctx, cancel := begin("rename")
	defer cancel()
	for _, path := range []string{"/fs/home/ann", "/fs/home/ann/notes"} {
		if _, err := cli.Put(ctx, path, "x"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(recipes.NewTree(cli, "").Rename(ctx, "home/ann", "home/anna"))
	// Output: 2 <nil>
}

func ExampleBalancer() {
	ctx, cancel := begin("balancer")
	defer cancel()
	web := recipes.NewBalancer(cli, "", "web")
	for _, s := range []recipes.Server{{Name: "one", Address: "10.0.0.1:80"}, {Name: "two", Address: "10.0.0.2:80"}} {
		if err := web.Join(ctx, s, grant(ctx)); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(web.Next(ctx))
	}
	// Output:
	// {one 10.0.0.1:80} <nil>
	// {two 10.0.0.2:80} <nil>
	// {one 10.0.0.1:80} <nil>
}

func ExampleTupleSpace() {
	ctx, cancel := begin("tuplespace")
	defer cancel()
	space := recipes.NewTupleSpace(cli, "")
	fmt.Println(space.Out(ctx, recipes.Tuple{"job", "1", "open"}, 0))
	open := recipes.Tuple{"job", recipes.Any, "open"}
	fmt.Println(space.Rdp(ctx, open))
	fmt.Println(space.Replace(ctx, open, recipes.Tuple{"job", "1", "taken"}))
	_, err := space.Inp(ctx, open)
	fmt.Println(errors.Is(err, recipes.ErrNoMatch))
	fmt.Println(space.Cas(ctx, recipes.Tuple{"lock", recipes.Any}, recipes.Tuple{"lock", "ann"}))
	fmt.Println(space.Cas(ctx, recipes.Tuple{"lock", recipes.Any}, recipes.Tuple{"lock", "bob"}))
	fmt.Println(space.RdAll(ctx, recipes.Tuple{"job", recipes.Any, recipes.Any}))
	// Output:
	// <nil>
	// [job 1 open] <nil>
	// [job 1 open] <nil>
	// true
	// true <nil>
	// false <nil>
	// [[job 1 taken]] <nil>
}
