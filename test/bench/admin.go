package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"

	"github.com/stoa-kv/stoa/test/process"
)

// admin is a connection for single requests: maintenance, and requests too
// large for the hand-written load.
type admin struct {
	conn        *grpc.ClientConn
	kv          pb.KVClient
	maintenance pb.MaintenanceClient
}

func openAdmin(s *process.Server) (*admin, error) {
	conn, err := grpc.NewClient(address(s), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(streamWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address(s), err)
	}
	return &admin{conn: conn, kv: pb.NewKVClient(conn), maintenance: pb.NewMaintenanceClient(conn)}, nil
}

func (a *admin) close() { a.conn.Close() }

// adminTime bounds single requests.
const adminTime = 5 * time.Minute

// once sends a single request to a server.
func once(s *process.Server, do func(context.Context, *admin) error) error {
	a, err := openAdmin(s)
	if err != nil {
		return err
	}
	defer a.close()
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	return do(ctx, a)
}

// compact compacts all history, and waits until that is finished.
func compact(ctx context.Context, a *admin) error {
	head, err := a.kv.Range(ctx, &pb.RangeRequest{Key: []byte("/"), CountOnly: true})
	if err != nil {
		return fmt.Errorf("asking for the revision: %w", err)
	}
	if _, err := a.kv.Compact(ctx, &pb.CompactionRequest{Revision: head.Header.Revision, Physical: true}); err != nil {
		return fmt.Errorf("compacting: %w", err)
	}
	return nil
}

func defragment(ctx context.Context, a *admin) error {
	if _, err := a.maintenance.Defragment(ctx, &pb.DefragmentRequest{}); err != nil {
		return fmt.Errorf("defragmenting: %w", err)
	}
	return nil
}

// snapshot takes a snapshot and discards it.
func snapshot(ctx context.Context, a *admin) (bytes int64, err error) {
	stream, err := a.maintenance.Snapshot(ctx, &pb.SnapshotRequest{})
	for err == nil {
		var part *pb.SnapshotResponse
		if part, err = stream.Recv(); err == nil {
			bytes += int64(len(part.Blob))
		}
	}
	if errors.Is(err, io.EOF) {
		return bytes, nil
	}
	return bytes, fmt.Errorf("taking a snapshot: %w", err)
}

// rangeAll reads many keys, strictly, and looks only at the size of the answer: what a
// client does to decode it is not the server's.
func rangeAll(ctx context.Context, a *admin, from, to string) (bytes int, err error) {
	req, err := encoding.GetCodecV2(proto.Name).Marshal(&pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(to)})
	if err != nil {
		return 0, err
	}
	var out []byte
	err = a.conn.Invoke(ctx, methods["get"], req.Materialize(), &out, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		return 0, fmt.Errorf("reading from %s to %s: %w", from, to, err)
	}
	return len(out), nil
}

// memoryOf is a process's memory: its own, and the pages of files that it has mapped.
type memoryOf struct{ own, file int64 }

func (m memoryOf) all() int64 { return m.own + m.file }

func (m memoryOf) String() string {
	return fmt.Sprintf("%d MiB (%d of them mapped files)", m.all()>>20, m.file>>20)
}

func residentOf(s *process.Server) (m memoryOf, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		return m, fmt.Errorf("reading the memory of %s: %w", s.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		to := map[string]*int64{"RssAnon": &m.own, "RssFile": &m.file}[name]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return m, fmt.Errorf("reading the memory of %s: %w", s.Name, err)
		}
		*to = kib << 10
	}
	return m, nil
}

// leader is the server that leads a cluster.
func leader(c *process.Cluster) (*process.Server, error) {
	at, err := leaderOf(c)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		if address(s) == at {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the leader, %s, is none of the cluster's servers", at)
}

// follower is a server that doesn't lead.
func follower(c *process.Cluster) (*process.Server, error) {
	l, err := leader(c)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		if s != l {
			return s, nil
		}
	}
	return nil, errors.New("there is no follower")
}

// revisionOf is the revision that a server has applied.
func revisionOf(s *process.Server) (rev int64, err error) {
	err = once(s, func(ctx context.Context, a *admin) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		st, err := a.maintenance.Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
		if err == nil {
			rev = st.Header.Revision
		}
		return err
	})
	return rev, err
}

// elections counts the changes of leader that the servers of a cluster have seen: the most
// that one of them has.
func elections(c *process.Cluster) (most uint64, err error) {
	for _, s := range c.Servers {
		if !s.Running() {
			continue
		}
		n, err := metricOf(s.ClientURL, "etcd_server_leader_changes_seen_total")
		if err != nil {
			return 0, err
		}
		most = max(most, uint64(n))
	}
	return most, nil
}
