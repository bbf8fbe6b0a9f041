package apply

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// dying runs an entry that must end the server, in a loop of its own, and returns why it
// did. The stores are still locked then, which unlocking them shows, and no client has been
// answered.
func (r *rig) dying(t *testing.T, e *command.Entry, parts placement.Set) (why error) {
	t.Helper()
	r.Fatal = func(err error) {
		require.NoError(t, why, "reported twice")
		require.Error(t, err)
		why = err
		runtime.Goexit() // as if the process had ended
	}
	loop := make(chan struct{})
	go func() {
		defer close(loop)
		r.execute(e, parts, func(i int, res Result) { t.Errorf("command %d is answered: %s", i, formatResult(res)) })
		t.Error("the execution went on")
	}()
	<-loop
	require.Error(t, why)
	r.unlock(parts)
	return why
}

// state is all that a replica has to agree on with the others.
func (r *rig) state() string {
	return r.storyState() + r.storyKeys() + r.storyRemembered() + fmt.Sprintln(len(r.events), "changes published")
}

var errInput = errors.New("input/output error")

// How one server's disk can fail to give back what it was given.
var breakages = map[string]func(*shelf){
	"the disk can't be read": func(h *shelf) { h.err = errInput },
	"a record is lost":       func(h *shelf) { clear(h.kvs) },
}

// (I6) A disk error is this server's alone: it must not get into the state, an answer or
// what is remembered of a session.
func TestAnUnreadableHistoryEndsTheServer(t *testing.T) {
	key := []byte("foo")
	// In a nested transaction, behind writes: they must not have happened either.
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{
		operationOf(&pb.PutRequest{Key: key, Value: []byte("new")}),
		operationOf(&pb.TxnRequest{Success: []*pb.RequestOp{operationOf(&pb.RangeRequest{Key: key, Revision: 3})}}),
	}}
	get := command.Call{Kind: command.Range, Client: "alice", Body: cmd(&pb.RangeRequest{Key: key, Revision: 3}).Body}
	sequenced := func(c command.Command) command.Command {
		q := command.Sequenced{Session: 7, Seq: 1, Kind: c.Kind, Body: c.Body}
		return command.Command{Kind: command.InSession, Body: q.AppendTo(nil)}
	}
	for name, breaks := range breakages {
		for kind, c := range map[string]command.Command{
			"transaction":              cmd(txn),
			"transaction of a session": sequenced(cmd(txn)),
			"read through the log":     {Kind: command.Extended, Body: get.AppendTo(nil)},
			"read of a session":        sequenced(command.Command{Kind: command.Extended, Body: get.AppendTo(nil)}),
		} {
			for _, parts := range []placement.Set{placement.Of(0), placement.Of(1), placement.Of(0) | placement.Of(1)} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, kind, parts), func(t *testing.T) {
					r, h := withHistory(t)
					if !parts.Has(r.Placement().Partition(key)) {
						t.Skip("the key is elsewhere")
					}
					r.apply(0, opening{&pb.LeaseGrantRequest{ID: 7, TTL: 60}})
					before := r.state()
					breaks(h)
					why := r.dying(t, &command.Entry{Stamp: 102, Commands: []command.Command{c}}, parts)
					require.ErrorContains(t, why, "revision 3.1")
					require.Equal(t, before, r.state())
				})
			}
		}
	}
}

// Without anybody to answer, a range in a transaction isn't evaluated, and a replica need
// not have what it asks for.
func TestAFollowerDoesNotReadWhatItNeedNotAnswer(t *testing.T) {
	r, h := withHistory(t)
	r.Fatal = func(err error) { t.Fatal(err) }
	h.err = errInput
	parts := placement.Of(r.Placement().Partition([]byte("foo")))
	r.execute(&command.Entry{Stamp: 102, Commands: []command.Command{cmd(&pb.TxnRequest{Success: []*pb.RequestOp{
		operationOf(&pb.RangeRequest{Key: []byte("foo"), Revision: 3}),
		operationOf(&pb.PutRequest{Key: []byte("foo"), Value: []byte("new")}),
	}})}}, parts, nil)
	require.Equal(t, "new", string(r.Stores[parts.First()].Get([]byte("foo")).Value()))
}

// A read outside of the log reports a failure as well, and its caller gets an error that
// is none of the client's making. That the file has been closed says nothing about it.
func TestReadsReportAnUnreadableHistory(t *testing.T) {
	key := []byte("foo")
	reads := map[string]func(*rig) error{
		"range": func(r *rig) error {
			_, err := r.Range(&pb.RangeRequest{Key: key}, r.Placement().All(), 3, 0)
			return err
		},
		"range of a revision": func(r *rig) error {
			_, err := r.Range(&pb.RangeRequest{Key: key, Revision: 3}, r.Placement().All(), 101, 0)
			return err
		},
		"get": func(r *rig) error {
			_, _, err := r.Get(key, r.Placement().Partition(key), 3, 0)
			return err
		},
		"compare": func(r *rig) error {
			_, err := r.ReadTxn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION}}}, r.Placement().All(), 3, 0)
			return err
		},
		"transaction": func(r *rig) error {
			_, err := r.ReadTxn(&pb.TxnRequest{Failure: []*pb.RequestOp{operationOf(&pb.RangeRequest{Key: key})},
				Compare: []*pb.Compare{{Key: []byte("none"), Target: pb.Compare_VERSION, Result: pb.Compare_NOT_EQUAL}}}, r.Placement().All(), 3, 0)
			return err
		},
	}
	for kind, read := range reads {
		for name, breaks := range breakages {
			t.Run(kind+"/"+name, func(t *testing.T) {
				r, h := withHistory(t)
				var why error
				r.Fatal = func(err error) { why = err }
				breaks(h)
				require.ErrorIs(t, read(r), fault.Internal)
				require.ErrorContains(t, why, "revision 3.1")
			})
		}
		t.Run(kind+"/closed", func(t *testing.T) {
			r, h := withHistory(t)
			r.Fatal = func(err error) { t.Errorf("ended over %v", err) }
			h.err = store.ErrClosed
			require.ErrorIs(t, read(r), fault.Internal)
		})
	}
}

// (I1, I6) Stamps increase along every log. Any other revision than the one that the
// entry carries would be this replica's own.
func TestAStampThatWasGivenOutBeforeIsFatal(t *testing.T) {
	put := &pb.PutRequest{Key: []byte("foo"), Value: []byte("x")}
	for name, entry := range map[string][]proto.Message{
		"a write":            {put},
		"a rendezvous":       {&pb.TxnRequest{Success: []*pb.RequestOp{operationOf(put), operationOf(&pb.PutRequest{Key: []byte("/b/x")})}}},
		"an unstamped grant": {&pb.LeaseGrantRequest{ID: 7, TTL: 60}},
	} {
		for _, stamp := range []int64{1, 9, 10} {
			t.Run(fmt.Sprintf("%s/%d", name, stamp), func(t *testing.T) {
				r := newRig(2)
				// A transaction that writes nothing has used its stamp up as well.
				r.apply(9, put)
				r.apply(10, &pb.TxnRequest{Failure: []*pb.RequestOp{operationOf(put)}, Compare: []*pb.Compare{
					{Key: []byte("foo"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 1}}}})
				before := r.state()
				e, parts := command.Entry{Stamp: stamp}, placement.Set(0)
				for _, req := range entry {
					e.Commands = append(e.Commands, cmd(req))
					parts |= r.Parts(req)
				}
				why := r.dying(t, &e, parts)
				require.ErrorContains(t, why, fmt.Sprintf("is stamped %d, but revision 10 has been applied", stamp))
				require.Equal(t, before, r.state())
			})
		}
	}
}

// A server that can't hold what the cluster's extensions keep ends at the registration, with
// nothing of it done, and doesn't start; given more memory it goes on where it was.
func TestAServerWithTooLittleMemoryEnds(t *testing.T) {
	const keeps = `local s = ("x"):rep(1000000) `
	r := newRig(2)
	r.ExtensionMemory = 3 << 19
	e, p := registering(r, "a", keeps+handler(`return s`), extension.Language)
	e.Stamp = 101
	r.entry(e, p.Parts, func(_ int, res Result) { require.NoError(t, res.Err) })
	before := r.state()

	e, p = registering(r, "b", keeps+handler(`return #s`), extension.Language)
	e.Stamp = 102
	require.ErrorContains(t, r.dying(t, e, p.Parts), "--memory-limit")
	require.Equal(t, before, r.state())
	require.Nil(t, r.Extensions().Get("b"))

	r.ExtensionMemory = 3 << 20
	r.entry(e, p.Parts, func(_ int, res Result) { require.NoError(t, res.Err) })
	require.NoError(t, r.LoadExtensions())
	require.NotNil(t, r.Extensions().Get("b"))
	r.ExtensionMemory = 3 << 19
	require.ErrorContains(t, r.LoadExtensions(), "this server may use 1572864 in all")
}
