package node

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
)

// sequenced sends a put of session 7 and returns what becomes of it.
func (c *cluster) sequenced(i int, seq, answered uint64, key, value string) replica.Outcome {
	body, err := proto.Marshal(&pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true})
	require.NoError(c.t, err)
	q := command.Sequenced{Session: 7, Seq: seq, Answered: min(answered, seq-1), Kind: command.Put, Body: body}
	for deadline := time.Now().Add(10 * time.Second); ; {
		core := c.nodes[i].current()
		done := make(chan replica.Outcome, 1)
		parts := core.machine.Parts(&pb.PutRequest{Key: []byte(key)})
		core.replica.Submit(&replica.Write{
			Command: command.Command{Kind: command.InSession, Body: q.AppendTo(nil)},
			Parts:   parts, Home: int32(parts.First()), Session: true,
			Done: func(out replica.Outcome) { done <- out },
		})
		out := <-done
		if out.Err == nil || !fault.Passing(out.Err) || time.Now().After(deadline) {
			return out
		}
	}
}

// sent sends the puts first to last and returns their answers.
func (c *cluster) sent(i int, first, last, answered uint64) map[uint64]string {
	answers := map[uint64]string{}
	for seq := first; seq <= last; seq++ {
		out := c.sequenced(i, seq, answered, fmt.Sprintf("/d%d/k", seq%5), fmt.Sprint(seq))
		require.NoError(c.t, out.Err, "write %d", seq)
		answers[seq] = out.Response.(*pb.PutResponse).String()
	}
	return answers
}

func (c *cluster) grant(i int, id int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := c.nodes[i].grantAs(ctx, command.SessionOpen, &pb.LeaseGrantRequest{ID: id, TTL: 600}, identity{})
	require.NoError(c.t, err)
}

// A server is killed after some of a session's writes were flushed, and others
// are only in the log. Sent again, each is answered as before and none takes
// effect twice.
func TestSessionsOutliveAKill(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			c := newCluster(t, 1, partitions)
			c.stop(0)
			c.configs[0].FlushInterval = time.Hour
			c.start(0)
			c.ready()
			c.grant(0, 7)
			answers := c.sent(0, 1, 20, 5)
			require.NoError(t, c.nodes[0].flushNow())
			for seq, answer := range c.sent(0, 21, 40, 10) {
				answers[seq] = answer
			}
			keys := c.get(0, "/", "0").Kvs

			// What is on the disk at this moment, without the orderly end.
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(c.configs[0].DataDir)))
			before := c.nodes[0].core.Load().machine
			var digests []uint64
			for p := range partitions {
				digests = append(digests, before.SessionsDigest(p))
			}
			c.stop(0)
			c.configs[0].DataDir = dir
			c.start(0)
			c.ready()
			for p := range partitions {
				require.Equal(t, digests[p], c.nodes[0].core.Load().machine.SessionsDigest(p), "partition %d", p)
			}
			for seq, answer := range c.sent(0, 11, 40, 0) {
				require.Equal(t, answers[seq], answer, "write %d", seq)
			}
			out := c.sequenced(0, 5, 0, "/d0/k", "5")
			require.ErrorIs(t, out.Err, fault.ResultForgotten)
			require.Equal(t, fmt.Sprint(keys), fmt.Sprint(c.get(0, "/", "0").Kvs))

			// The session ends, and is forgotten for good.
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := c.nodes[0].LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 7})
			require.NoError(t, err)
			c.stop(0)
			c.start(0)
			c.ready()
			require.Zero(t, c.nodes[0].core.Load().machine.OpenSessions())
			require.ErrorIs(t, c.sequenced(0, 41, 0, "/d0/k", "41").Err, fault.SessionGone)
		})
	}
}

// A server that gets the whole file remembers the sessions of the one that sent it.
func TestSessionsComeWithASnapshot(t *testing.T) {
	const partitions = 3
	c := newCluster(t, 3, partitions, shortLog)
	c.ready()
	c.grant(0, 7)
	answers := c.sent(0, 1, 10, 0)
	c.stop(2)
	for seq, answer := range c.sent(1, 11, 20, 0) {
		answers[seq] = answer
	}
	for i := range 200 {
		c.put(i%2, fmt.Sprintf("/dir%d/key", i%20), fmt.Sprint(i))
	}
	for i := range 2 {
		require.NoError(t, c.nodes[i].flushNow())
	}
	c.start(2)
	c.ready()
	c.get(2, "\x00", "\x00")
	require.Positive(t, c.nodes[2].installed.Load(), "it did not come by snapshot")
	for p := range partitions {
		require.Equal(t, c.nodes[0].core.Load().machine.SessionsDigest(p), c.nodes[2].core.Load().machine.SessionsDigest(p), "partition %d", p)
	}
	c.stop(0)
	for seq, answer := range c.sent(2, 1, 20, 0) {
		require.Equal(t, answers[seq], answer, "write %d", seq)
	}
}
