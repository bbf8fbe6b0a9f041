package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
)

// watch follows what is done, until ctx ends. A watch that ends for whatever reason begins again
// behind the present record.
func (q *Client) watch(ctx context.Context, home *clientv3.Client) {
	for ctx.Err() == nil {
		rec, err := readRecord(ctx, home, q.keys)
		if err == nil {
			q.tell(rec.done)
			q.follow(ctx, home, rec.revision+1)
		} else if ctx.Err() == nil {
			q.retrying(err)
		}
		sleep(ctx, pause/5)
	}
}

func (q *Client) follow(ctx context.Context, home *clientv3.Client, from int64) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range home.Watch(ctx, q.keys.Done(), clientv3.WithRev(from)) {
		if r.Err() != nil {
			return
		}
		if n := len(r.Events); n > 0 && r.Events[n-1].Type == clientv3.EventTypePut {
			done, err := commands.ParseDone(r.Events[n-1].Kv.Value)
			if err != nil {
				return
			}
			q.tell(done)
		}
	}
}

// tell tells the commands that are done.
func (q *Client) tell(done commands.Done) {
	q.mu.Lock()
	if done.Entry > q.done.Entry {
		q.done = done
	}
	n := 0
	for n < len(q.taken) && q.taken[n].entry <= q.done.Entry {
		n++
	}
	told := q.taken[:n:n]
	q.taken = q.taken[n:]
	done = q.done
	q.mu.Unlock()
	if n > 0 && q.cfg.Had != nil {
		q.cfg.Had(done.Revisions)
	}
	for _, t := range told {
		t.future.done.Resolve(t.entry, nil)
	}
}
