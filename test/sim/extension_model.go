package sim

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// handlers says which extension handles requests on which keys.
var handlers = map[string]string{"/x/inc": "counter", "/x/push": "queue", "/x/pop": "queue", "/x/hog": "hog", "/x/tell": "hog", "/x/give": "line"}

func handlerOf(key string) string {
	if strings.HasPrefix(key, waits) {
		return "line"
	}
	return handlers[key]
}

// call is the behaviour of a sequential server with extensions for a named
// client: the requests that extensions handle, and those that manage them.
func (e *evaluation) call(req proto.Message) proto.Message {
	if e.who == "" {
		return e.do(req)
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		if name, rest, ok := managed(r.Key); ok {
			return e.manage(r, name, rest)
		}
		if e.handles(string(r.Key)) {
			if kv, ok := e.run(string(r.Key), r.Value); ok {
				return &pb.PutResponse{PrevKv: kv}
			}
			return nil
		}
	case *pb.RangeRequest:
		if e.handles(string(r.Key)) {
			if kv, ok := e.run(string(r.Key), nil); ok {
				return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}, Count: 1}
			}
			return nil
		}
	case *pb.WatchCreateRequest:
		if e.handles(string(r.Key)) {
			if kv, ok := e.run(string(r.Key), nil); ok {
				return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}}
			}
			return nil
		}
	case *pb.DeleteRangeRequest:
		if name, rest, ok := managed(r.Key); ok {
			return e.unmanage(name, rest)
		}
	}
	return e.do(req)
}

// managed says what part of which extension a key is.
func managed(key []byte) (name, rest string, ok bool) {
	after, ok := strings.CutPrefix(string(key), manager)
	name, rest, _ = strings.Cut(after, "/")
	return name, rest, ok
}

func (e *evaluation) ackKey(name string) string { return manager + name + "/ack/" + e.who }
func stateKey(name string) string               { return manager + name + "/state" }

func (e *evaluation) standing(name string) extension.Standing {
	return extension.ParseStanding(e.keys.get(stateKey(name)).GetValue())
}

// manage is the put of one of the manager's keys.
func (e *evaluation) manage(r *pb.PutRequest, name, rest string) proto.Message {
	registered := e.keys.get(manager+name) != nil
	switch {
	case rest == "":
		e.write(string(r.Key), r.Value, 0)
		e.adopt(name)
		if e.standing(name) != (extension.Standing{}) {
			e.remove(e.keys.get(stateKey(name)))
		}
		if !registered {
			e.write(manager+name+"/language", []byte(language), 0)
		}
	case !registered:
		return nil
	case rest == "ack":
		e.write(e.ackKey(name), r.Value, e.carries)
	case rest == "state":
		s := string(r.Value)
		if s == "disabled" {
			s += ": by " + e.who
		}
		e.write(stateKey(name), []byte(s), 0)
	}
	return &pb.PutResponse{}
}

// adopt notes whose an extension is. What clients have acknowledged was that of another.
func (e *evaluation) adopt(name string) {
	key := manager + name
	if !e.owns(name) {
		for _, ack := range e.keys.between([]byte(key+"/ack/"), []byte(key+"/ack0")) {
			e.remove(ack)
		}
		e.write(key+"/owner", []byte(e.who), 0)
	}
	if string(e.keys.get(key+"/registrar").GetValue()) != e.as {
		e.write(key+"/registrar", []byte(e.as), 0)
	}
}

func (e *evaluation) unmanage(name, rest string) proto.Message {
	key := manager + name
	if rest == "ack" {
		key = e.ackKey(name)
	}
	if e.keys.get(key) == nil {
		return &pb.DeleteRangeResponse{}
	}
	e.remove(e.keys.get(key))
	if rest == "" {
		for _, kv := range e.keys.between([]byte(key+"/"), []byte(key+"0")) {
			e.remove(kv)
		}
	}
	return &pb.DeleteRangeResponse{Deleted: 1}
}

// handles says whether an extension handles this client's requests on a key.
func (e *evaluation) handles(key string) bool {
	name := handlerOf(key)
	return name != "" && e.uses(name)
}

// uses says whether an extension is this client's, or one that it has acknowledged.
func (e *evaluation) uses(name string) bool {
	return e.keys.get(manager+name+"/owner") != nil && (e.owns(name) || e.keys.get(e.ackKey(name)) != nil)
}

// owns says whether an extension is this client's.
func (e *evaluation) owns(name string) bool {
	owner := e.keys.get(manager + name + "/owner")
	return owner != nil && string(owner.Value) == e.who
}

// hogFails is how the extension that loops is stopped.
const hogFails = `stoa: extension "hog": line 6, column 66: more than 100000 steps`

// run is a call of an extension. It tells the value that it answers with, and
// whether it does.
func (e *evaluation) run(key string, value []byte) (kv *mvccpb.KeyValue, ok bool) {
	name := handlerOf(key)
	standing := e.standing(name)
	if standing.Disabled {
		return nil, false
	}
	if key == "/x/hog" && strings.HasPrefix(string(value), "loop") {
		limits := extension.Defaults
		e.write(stateKey(name), []byte(standing.Fail(hogFails, &limits).String()), 0)
		return nil, false
	}
	if standing.Failures > 0 {
		e.recovered = name
	}
	if !e.attempt(func() { kv = e.handle(name, key, value) }) {
		e.barred = true
		return nil, false
	}
	e.useUp(name)
	return kv, true
}

// handle is what a handler does.
func (e *evaluation) handle(name, key string, value []byte) *mvccpb.KeyValue {
	if name == "line" {
		return e.hand(key, value)
	}
	switch key {
	case "/x/inc":
		value = e.increment("/x/ctr")
	case "/x/push":
		e.write(fmt.Sprintf("/x/q/%10d", e.rev), value, 0)
	case "/x/pop":
		queue := e.keys.between([]byte("/x/q/"), []byte("/x/q0"))
		if len(queue) == 0 {
			return nil
		}
		e.remove(queue[0])
		value = queue[0].Value
	case "/x/tell":
		e.notify(value)
	case "/x/hog":
		e.write("/x/hogged", value, 0)
	}
	return e.result(key, value)
}

// result is a plain value as the answer to a call.
func (e *evaluation) result(key string, value []byte) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: e.rev, ModRevision: e.rev, Version: 1}
}

// useUp ends an acknowledgement that was good for one call, unless it is that of the client whose extension it is, which needs none.
func (e *evaluation) useUp(name string) {
	if e.owns(name) {
		return
	}
	if ack := e.keys.get(e.ackKey(name)); ack != nil && string(ack.Value) == "once" {
		e.remove(ack)
	}
}

func (e *evaluation) increment(key string) []byte {
	n, _ := strconv.Atoi(string(e.keys.get(key).GetValue()))
	value := strconv.AppendInt(nil, int64(n+1), 10)
	e.write(key, value, 0)
	return value
}

// follow is what follows from a request: events, and then that an extension which
// had failed before has not.
func (e *evaluation) follow(req proto.Message) {
	e.react(req)
	if _, ends := req.(*pb.LeaseRevokeRequest); !ends && len(e.changes) > 0 && !e.fits() { // the end of a lease isn't refused
		e.changes, e.barred, e.recovered = nil, true, ""
	}
	if e.recovered != "" {
		e.write(stateKey(e.recovered), []byte("enabled"), 0)
	}
}

// react counts the events of a request, as the extension for them does.
func (e *evaluation) react(req proto.Message) {
	if e.keys.get(manager+"events") == nil || e.standing("events").Disabled {
		return
	}
	_, expiring := req.(*pb.LeaseRevokeRequest)
	as := e.registrarOf("events")
	for _, c := range e.changes { // what is written meanwhile is of no interest
		event := ""
		switch {
		case !strings.HasPrefix(string(c.Kv.Key()), "/x/e/"):
		case c.Delete && expiring:
			event = "expired"
		case c.Delete:
			event = "deleted"
		case c.Kv.Version() == 1:
			event = "created"
		}
		switch {
		case event == "":
		case !as.reactsTo(string(c.Kv.Key()), event):
			e.unhandled++
		case !e.attempt(func() {
			e.increment("/x/log/" + event)
			if event == "expired" {
				e.notify(c.Kv.Key())
			}
		}):
			e.unfit++
		case !as.all:
			e.handled++
		}
	}
}

// notify shows something to watchers that is no part of the history.
func (e *evaluation) notify(value []byte) {
	e.changes = append(e.changes, store.Change{
		Revision: e.next(), Kv: kvwire.Make([]byte("/x/told"), value, kvwire.Fields{ModRevision: e.rev}),
	})
}

func isNotice(c store.Change) bool { return !c.Delete && c.Kv.Version() == 0 }

// write puts a key.
func (e *evaluation) write(key string, value []byte, lease int64) {
	prev := e.keys.get(key)
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: e.rev, ModRevision: e.rev, Version: 1, Lease: lease}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	}
	e.writable().put(kv)
	e.changes = append(e.changes, store.Change{Revision: e.next(), Kv: kvwire.Of(kv), Prev: e.before(kv.Key, prev)})
}
