package crashpoints

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// thing is what a server acknowledges. n numbers the requests.
type thing struct {
	name    string
	prepare func(ctx context.Context, c *client.Client, n int) error
	do      func(ctx context.Context, c *client.Client, n int) error
	// there reports whether it has happened; an error if it has in part.
	there func(ctx context.Context, c *client.Client, n int) (bool, error)
	// gone: later requests undo it.
	gone bool
	// outlives: the client sends it again, until it is answered, and it happens once.
	outlives bool
}

// dirs are directories in several partitions.
var dirs = []string{"/a", "/b", "/c", "/d", "/e", "/f"}

func keysOf(n int) (keys []string) {
	for _, dir := range dirs {
		keys = append(keys, fmt.Sprintf("%s/%d", dir, n))
	}
	return keys
}

// present counts keys, and says with how many mod revisions.
func present(ctx context.Context, c *client.Client, keys []string) (count, revisions int, err error) {
	seen := map[int64]bool{}
	for _, key := range keys {
		r, err := c.Get(ctx, key)
		if err != nil {
			return 0, 0, err
		}
		for _, kv := range r.Kvs {
			count++
			seen[kv.ModRevision] = true
		}
	}
	return count, len(seen), nil
}

var things = []thing{
	{name: "write",
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.Put(ctx, fmt.Sprint("/w/", n), "v")
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			count, _, err := present(ctx, c, []string{fmt.Sprint("/w/", n)})
			return count == 1, err
		}},
	{name: "transaction over partitions",
		do: func(ctx context.Context, c *client.Client, n int) error {
			var puts []clientv3.Op
			for _, key := range keysOf(n) {
				puts = append(puts, clientv3.OpPut(key, "v"))
			}
			_, err := c.Txn(ctx).Then(puts...).Commit()
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			count, revisions, err := present(ctx, c, keysOf(n))
			if revisions > 1 {
				return false, fmt.Errorf("at %d revisions", revisions)
			}
			return all(count, len(dirs), err)
		}},
	{name: "session write", outlives: true,
		prepare: func(ctx context.Context, c *client.Client, _ int) (err error) {
			opened, err = c.Session(ctx)
			return err
		},
		do: func(ctx context.Context, _ *client.Client, n int) error {
			_, err := opened.Put(ctx, fmt.Sprint("/s/", n), "v")
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			r, err := c.Get(ctx, fmt.Sprint("/s/", n))
			if err != nil || len(r.Kvs) == 0 {
				return false, err
			}
			if v := r.Kvs[0].Version; v != 1 {
				return false, fmt.Errorf("it has been written %d times", v)
			}
			return true, nil
		}},
	{name: "lease",
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := clientv3.RetryLeaseClient(c.Client).LeaseGrant(ctx, grant(n))
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) { return hasLease(ctx, c, n) }},
	{name: "end of a lease",
		prepare: func(ctx context.Context, c *client.Client, n int) error {
			if _, err := clientv3.RetryLeaseClient(c.Client).LeaseGrant(ctx, grant(n)); err != nil {
				return err
			}
			for _, key := range keysOf(n) {
				if _, err := c.Put(ctx, "/leased"+key, "v", clientv3.WithLease(leaseID(n))); err != nil {
					return err
				}
			}
			return nil
		},
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.Revoke(ctx, leaseID(n))
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			lease, err := hasLease(ctx, c, n)
			if err != nil {
				return false, err
			}
			var keys []string
			for _, key := range keysOf(n) {
				keys = append(keys, "/leased"+key)
			}
			count, _, err := present(ctx, c, keys)
			if lease {
				count++
			}
			left, err := all(count, len(keys)+1, err)
			return !left, err
		}},
	{name: "member", gone: true,
		prepare: func(ctx context.Context, c *client.Client, _ int) error {
			list, err := c.MemberList(ctx)
			if err != nil {
				return err
			}
			for _, m := range list.Members {
				if m.IsLearner {
					if _, err := c.MemberRemove(ctx, m.ID); err != nil {
						return err
					}
				}
			}
			return nil
		},
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.MemberAddAsLearner(ctx, []string{peerURL(n)})
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			list, err := c.MemberList(ctx)
			if err != nil {
				return false, err
			}
			for _, m := range list.Members {
				if slices.Contains(m.PeerURLs, peerURL(n)) {
					return true, nil
				}
			}
			return false, nil
		}},
	{name: "user",
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.UserAddWithOptions(ctx, fmt.Sprint("user", n), "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			list, err := c.UserList(ctx)
			if err != nil {
				return false, err
			}
			return slices.Contains(list.Users, fmt.Sprint("user", n)), nil
		}},
	{name: "extension",
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.Put(ctx, fmt.Sprint("/em/x", n), extension(n))
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			count, _, err := present(ctx, c, []string{fmt.Sprint("/em/x", n)})
			if err != nil {
				return false, err
			}
			r, err := c.Get(ctx, fmt.Sprintf("/x%d/k", n))
			if err != nil {
				return false, err
			}
			answers := len(r.Kvs) == 1 && string(r.Kvs[0].Value) == "answered"
			if answers != (count == 1) {
				return false, fmt.Errorf("registered: %v, answers: %v", count == 1, r.Kvs)
			}
			return answers, nil
		}},
	{name: "compaction", gone: true,
		prepare: func(ctx context.Context, c *client.Client, n int) error {
			for i := range 4 {
				r, err := c.Put(ctx, "/compacted/"+fmt.Sprint(i), "v")
				if err != nil {
					return err
				}
				compactedAt[n] = r.Header.Revision
			}
			return nil
		},
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.Compact(ctx, compactedAt[n])
			return err
		},
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			_, err := c.Get(ctx, "/compacted/3", clientv3.WithRev(compactedAt[n]-1))
			if errors.Is(err, rpctypes.ErrCompacted) {
				return true, nil
			}
			return false, err
		}},
	{name: "defragmentation",
		prepare: func(ctx context.Context, c *client.Client, n int) error {
			for i := range 50 {
				if _, err := c.Put(ctx, fmt.Sprintf("%s/defragmented/%d", dirs[i%len(dirs)], n), "v"); err != nil {
					return err
				}
			}
			r, err := c.HashKV(ctx, c.Endpoints()[0], 0)
			if err == nil {
				defragmented[n] = r
			}
			return err
		},
		do: func(ctx context.Context, c *client.Client, n int) error {
			_, err := c.Defragment(ctx, c.Endpoints()[0])
			return err
		},
		// It changes nothing that can be seen, whether it happens or not.
		there: func(ctx context.Context, c *client.Client, n int) (bool, error) {
			before := defragmented[n]
			r, err := c.HashKV(ctx, c.Endpoints()[0], before.HashRevision)
			if err != nil {
				return false, err
			}
			if r.Hash != before.Hash || r.HashRevision != before.HashRevision || r.CompactRevision != before.CompactRevision {
				return false, fmt.Errorf("the hash was %v before, and is %v", before, r)
			}
			return true, nil
		}},
}

// Of one test each: the session, the revisions of compactions, and hashes before defragmentations.
var (
	opened       *client.Session
	compactedAt  = map[int]int64{}
	defragmented = map[int]*clientv3.HashKVResponse{}
)

func all(count, of int, err error) (bool, error) {
	if err == nil && count != 0 && count != of {
		err = fmt.Errorf("%d of %d are there", count, of)
	}
	return count == of, err
}

func leaseID(n int) clientv3.LeaseID { return clientv3.LeaseID(1000 + n) }

func grant(n int) *pb.LeaseGrantRequest {
	return &pb.LeaseGrantRequest{ID: int64(leaseID(n)), TTL: 3600}
}

func hasLease(ctx context.Context, c *client.Client, n int) (bool, error) {
	r, err := c.TimeToLive(ctx, leaseID(n))
	if err != nil {
		return false, err
	}
	return r.TTL > 0, nil
}

func peerURL(n int) string { return fmt.Sprintf("http://10.254.%d.%d:2380", n/250, n%250+1) }

func extension(n int) string {
	return strings.ReplaceAll(`return {
  scope = { "/xN/" },
  operations = { { op = "read", prefix = "/xN/" } },
  read = function(request) return "answered" end,
}
`, "N", fmt.Sprint(n))
}
