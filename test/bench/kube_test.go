package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func TestMostThatHold(t *testing.T) {
	for _, limit := range []int{1, 37, 1000, 5000, 5001, 9999, 10_000, 70_000} {
		var asked int
		got, err := mostThatHold(5000, func(n int) (bool, error) {
			asked++
			return n <= limit, nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, got, limit)
		require.Greater(t, float64(got), float64(limit)*0.9-1, "limit %d", limit)
		require.Less(t, asked, 20)
	}
	got, err := mostThatHold(5000, func(int) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Zero(t, got)
}

func TestJudge(t *testing.T) {
	sample := func(nodes int, took, late time.Duration, part float64) kubeSample {
		s := kubeSample{nodes: nodes, times: &kubeTimes{}, took: time.Second}
		for range int(part * writesPerSecond(nodes)) {
			s.times[leaseUpdates].add(took)
			s.times[sendDelays].add(late)
		}
		return s
	}
	require.InDelta(t, 565, writesPerSecond(5000), 30)
	require.Equal(t, holds, sample(5000, 50*time.Millisecond, time.Millisecond, 1).judge())
	require.Equal(t, fails, sample(5000, 150*time.Millisecond, time.Millisecond, 1).judge())
	require.Equal(t, fails, sample(5000, 50*time.Millisecond, time.Millisecond, 0.5).judge(), "what isn't sent doesn't hold")
	require.Equal(t, generatorFails, sample(5000, 150*time.Millisecond, 50*time.Millisecond, 1).judge())
}

// An event is as late as its value says; one without a value, a deletion, doesn't count.
func TestEventsAreAsLateAsTheirValueSays(t *testing.T) {
	value := make([]byte, 20)
	stamp(value, time.Now().Add(-time.Second))
	answer, err := proto.Marshal(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 7}, Events: []*mvccpb.Event{
		{Kv: &mvccpb.KeyValue{Key: []byte("a"), Value: value}, PrevKv: &mvccpb.KeyValue{Key: []byte("a"), Value: make([]byte, 20)}},
		{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("b")}, PrevKv: &mvccpb.KeyValue{Key: []byte("b"), Value: value}},
	}})
	require.NoError(t, err)
	c := &kubeConn{recording: true}
	require.NoError(t, c.watched(answer))
	require.EqualValues(t, 1, c.hist[eventLags].count)
	require.InDelta(t, time.Second, c.hist[eventLags].quantile(0.5), float64(100*time.Millisecond))

	answer, err = proto.Marshal(&pb.WatchResponse{Canceled: true})
	require.NoError(t, err)
	require.Error(t, c.watched(answer))
}

func TestProgressIsAnsweredOnce(t *testing.T) {
	c := &kubeConn{recording: true, asked: time.Now()}
	created, err := proto.Marshal(&pb.WatchResponse{Created: true})
	require.NoError(t, err)
	progress, err := proto.Marshal(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 7}, WatchId: -1})
	require.NoError(t, err)
	for _, answer := range [][]byte{created, progress, progress} {
		require.NoError(t, c.watched(answer))
	}
	require.EqualValues(t, 1, c.hist[progressRequests].count)
}

func TestReadPage(t *testing.T) {
	b, err := proto.Marshal(&pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}, More: true,
		Kvs: []*mvccpb.KeyValue{{Key: []byte("a"), Value: []byte("x")}, {Key: []byte("b"), Value: []byte("y")}}})
	require.NoError(t, err)
	p, err := readPage(b)
	require.NoError(t, err)
	require.Equal(t, kubePage{rev: 7, last: "b", more: true}, p)

	b, err = proto.Marshal(&pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}})
	require.NoError(t, err)
	_, err = readPage(b)
	require.Error(t, err, "objects that are there are missing")
}

// What is due is sent, also when the sender comes late, and no more.
func TestAPaceIsKept(t *testing.T) {
	begin := time.Now()
	var dues []time.Duration
	p := &paced{gap: 10 * time.Millisecond, next: begin, send: func(due time.Time) error {
		dues = append(dues, due.Sub(begin))
		return nil
	}}
	send := allOf(p)
	for _, now := range []time.Duration{0, 5, 10, 35} {
		next, err := send(begin.Add(now * time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, p.next, next)
	}
	require.Equal(t, []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond}, dues)
}

// A refused call stays unanswered, and is the first to be sent again when its time has come.
func TestARefusedCallIsSentAgain(t *testing.T) {
	c := &kubeConn{open: map[uint32]*kubeCall{7: {begin: time.Now()}, 9: {}}, recording: true}
	require.NoError(t, c.answered(&stream{id: 7, refused: true, ended: errEnded}))
	require.Len(t, c.again, 1)
	require.Len(t, c.open, 1)
	require.Zero(t, c.hist[leaseUpdates].count)
	require.NoError(t, c.sendAgain(time.Now()), "too early")
	require.Len(t, c.again, 1)
	require.Error(t, c.answered(&stream{id: 9, ended: io.ErrUnexpectedEOF}), "what else ends a call is an error")
}

// The report of Kubernetes' load has no other part.
func TestKubeHasAReportOfItsOwn(t *testing.T) {
	require.NotContains(t, namesOfReport(), kubeName)
	_, err := parse([]string{"-what", "kube,unary"})
	require.Error(t, err)
	require.Contains(t, merge("", "img", []section{{title: kubeTitle}}), "make bench-kube")
	require.NotContains(t, merge("", "img", []section{{title: "Unary calls"}}), "make bench-kube")
}
