package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/test/process"
)

// Of the keys that are loaded.
const (
	txnPuts    = 40      // puts to a transaction, which stays below an HTTP/2 frame of 16 KiB
	largeRange = 100_000 // keys
	renewed    = 10      // of so many keys one is put again before each compaction
)

// quota is large enough for 10 million keys, and for what sessions write in a minute.
const quota = "--quota-backend-bytes=17179869184"

// scaleRow is one line: figures of etcd and of stoa.
type scaleRow struct {
	what   string
	of     [2][]float64
	format func([]float64) string
	atMost bool // stoa's must not exceed etcd's
}

// scaler measures etcd and stoa side by side.
type scaler struct {
	p    *plan
	both []*bench
	rows []*scaleRow
}

// measureScale loads many keys into one server of each kind.
func measureScale(p *plan) (s section, err error) {
	small := *p
	small.keys = 100
	args := []string{quota}
	both, done, err := small.pair(1, subject{args: args}, subject{args: args})
	if err != nil {
		return s, err
	}
	defer func() { done(&err) }()
	sc := &scaler{p: p, both: both}
	for _, step := range []func() error{sc.load, sc.memory("resident memory, loaded"), sc.ranges, sc.snapshots, sc.compactions,
		sc.defragmentation, sc.restarts, sc.memory("resident memory, restarted")} {
		if err := step(); err != nil {
			return s, err
		}
	}
	s.rows = [][]string{{"work", "etcd", "stoa", "stoa : etcd"}}
	for _, r := range sc.rows {
		row, v := r.cells()
		s.rows = append(s.rows, row)
		if r.atMost {
			v.goal = fmt.Sprintf("size, %d keys of %d B, %s: beside etcd", p.keysScale, p.value, v.goal)
			s.verdicts = append(s.verdicts, v)
		}
	}
	s.text = fmt.Sprintf("One server of each kind, %d keys of %d B in %d directories, loaded by 50 clients in transactions of %d puts. Resident memory counts the pages of mapped files "+
		"and is the least of 10 seconds. Restarts: kill -9, then the time until a strict read is answered. Before each compaction one of %d keys is put again. %d rounds, interleaved.",
		p.keysScale, p.value, directories, txnPuts, renewed, p.rounds)
	return s, nil
}

func (r *scaleRow) cells() ([]string, verdict) {
	ratio := ratioOf(r.of[1], r.of[0])
	return []string{r.what, r.format(r.of[0]), r.format(r.of[1]), ratio.String()}, atMost(r.what, ratio, 1)
}

func asDurations(v []float64) string {
	var d durations
	for _, f := range v {
		d = append(d, time.Duration(f))
	}
	return d.String()
}

func asMiB(v []float64) string { return fmt.Sprintf("%.0f MiB", v[len(v)-1]/(1<<20)) }

func asRate(v []float64) string { return fmt.Sprintf("%.0f/s", v[len(v)-1]) }

// row is the line of that name, which is made when it is first asked for.
func (sc *scaler) row(what string, format func([]float64) string) *scaleRow {
	for _, r := range sc.rows {
		if r.what == what {
			return r
		}
	}
	r := &scaleRow{what: what, format: format}
	sc.rows = append(sc.rows, r)
	return r
}

func (sc *scaler) add(i int, r *scaleRow, v float64) {
	r.of[i] = append(r.of[i], v)
	fmt.Fprintf(os.Stderr, "%s, %s: %s\n", r.what, sc.both[i].subject.name, r.format([]float64{v}))
}

// timed measures something on both servers, round by round.
func (sc *scaler) timed(rounds int, what string, prepare, do func(*process.Server) error) error {
	r := sc.row(what, asDurations)
	for range rounds {
		for i, b := range sc.both {
			server := b.cluster.Servers[0]
			if prepare != nil {
				if err := prepare(server); err != nil {
					return fmt.Errorf("%s, %s: %w", what, b.subject.name, err)
				}
			}
			began := time.Now()
			if err := do(server); err != nil {
				return fmt.Errorf("%s, %s: %w", what, b.subject.name, err)
			}
			sc.add(i, r, float64(time.Since(began)))
		}
	}
	return nil
}

func (sc *scaler) load() error {
	for i, b := range sc.both {
		began := time.Now()
		if err := b.load.fillWith(sc.p.keysScale, sc.p.value, 0); err != nil {
			return fmt.Errorf("loading %s: %w", b.subject.name, err)
		}
		sc.add(i, sc.row("loading, keys", asRate), float64(sc.p.keysScale)/time.Since(began).Seconds())
	}
	return nil
}

// fillWith puts keys in transactions of one directory each. Which part of the keys
// differs between seeds that aren't 0.
func (l *load) fillWith(keys, value int, seed uint64) error {
	stride := directories * txnPuts
	txns := max(keys/stride, 1) * directories
	if seed > 0 {
		txns = max(txns/renewed, 1)
	}
	var next atomic.Int64
	content := strings.Repeat("x", value)
	message := func(int) []byte {
		at := int(next.Add(1)-1) % txns
		if seed > 0 {
			at = rand.New(rand.NewPCG(seed, uint64(at))).IntN(txns * renewed)
		}
		t := &pb.TxnRequest{}
		for j := range txnPuts {
			key := keyName(at%directories + directories*(at/directories*txnPuts+j))
			t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(content)}}})
		}
		// Marshalling so simple a message doesn't fail.
		b, _ := proto.Marshal(t)
		return b
	}
	return l.run("txn", 50, message, func() bool { return int(next.Load()) >= txns }).wait()
}

// settling is how long memory is looked at.
const settling = 10

func (sc *scaler) memory(what string) func() error {
	return func() error {
		r := sc.row(what, asMiB)
		r.atMost = true
		least := make([]memoryOf, len(sc.both))
		for range settling {
			time.Sleep(time.Second)
			for i, b := range sc.both {
				m, err := residentOf(b.cluster.Servers[0])
				if err != nil {
					return err
				}
				if least[i].all() == 0 || m.all() < least[i].all() {
					least[i] = m
				}
			}
		}
		mapped := sc.row(what+", of this mapped files", asMiB)
		for i, m := range least {
			sc.add(i, r, float64(m.all()))
			sc.add(i, mapped, float64(m.file))
		}
		return sc.p.look(sc.both[1].cluster.Servers[0], what, "heap")
	}
}

// ranges read many keys, and count all.
func (sc *scaler) ranges() error {
	perDirectory := max(sc.p.keysScale/directories, 1)
	dirs := min(max(largeRange/perDirectory, 1), directories)
	to := fmt.Sprintf("/bench/%02d/", dirs)
	if dirs == directories {
		to = "/bench0"
	}
	err := sc.timed(sc.p.rounds, fmt.Sprintf("strict range of %d keys", dirs*perDirectory), nil, func(s *process.Server) error {
		return once(s, func(ctx context.Context, a *admin) error {
			n, err := rangeAll(ctx, a, "/bench/00/", to)
			if err == nil && n < dirs*perDirectory*sc.p.value*9/10 {
				err = fmt.Errorf("the range has %d bytes", n)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return sc.timed(sc.p.rounds, "strict count of all keys", nil, func(s *process.Server) error {
		return once(s, func(ctx context.Context, a *admin) error {
			_, err := a.kv.Range(ctx, &pb.RangeRequest{Key: []byte("/bench/"), RangeEnd: []byte("/bench0"), CountOnly: true})
			return err
		})
	})
}

func (sc *scaler) snapshots() error {
	var size int64
	err := sc.timed(sc.p.rounds, "snapshot to a client", nil, func(s *process.Server) error {
		return once(s, func(ctx context.Context, a *admin) (err error) {
			size, err = snapshot(ctx, a)
			return err
		})
	})
	if err != nil {
		return err
	}
	for i, b := range sc.both {
		err := once(b.cluster.Servers[0], func(ctx context.Context, a *admin) (err error) {
			size, err = snapshot(ctx, a)
			return err
		})
		if err != nil {
			return err
		}
		sc.add(i, sc.row("size of the snapshot", asMiB), float64(size))
	}
	return nil
}

func (sc *scaler) compactions() error {
	seed := uint64(0)
	return sc.timed(sc.p.rounds, "compaction, until all is removed", func(s *process.Server) error {
		seed++
		for _, b := range sc.both {
			if b.cluster.Servers[0] == s {
				return b.load.fillWith(sc.p.keysScale, sc.p.value, seed)
			}
		}
		return nil
	}, func(s *process.Server) error { return once(s, compact) })
}

func (sc *scaler) defragmentation() error {
	return sc.timed(1, "defragmentation", nil, func(s *process.Server) error { return once(s, defragment) })
}

// restarts kill each server, and wait for the first answer of the next.
func (sc *scaler) restarts() error {
	const what = "restart, to the first answer"
	sc.row(what, asDurations).atMost = true
	return sc.timed(sc.p.rounds, what, func(s *process.Server) error {
		time.Sleep(2 * time.Second) // what was written last is flushed
		return s.Kill()
	}, func(s *process.Server) error {
		if err := s.Start(); err != nil {
			return err
		}
		return firstAnswer(s)
	})
}

// firstAnswer waits until a strict read is answered.
func firstAnswer(s *process.Server) error {
	deadline := time.Now().Add(adminTime)
	for time.Now().Before(deadline) {
		if !s.Running() {
			return fmt.Errorf("%s ended; its log: %s", s.Name, s.LogTail(2000))
		}
		w, err := openWire(address(s), methods["get"], "", 4<<10)
		if err != nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		// Marshalling so simple a message doesn't fail.
		get, _ := proto.Marshal(&pb.RangeRequest{Key: []byte(keyName(0))})
		answered := false
		err = w.drive([]int{0}, func(int) []byte { return get }, func(*call) { answered = true }, func() bool { return true })
		w.conn.Close()
		if err == nil && answered {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return fmt.Errorf("%s has not answered within %v", s.Name, adminTime)
}
