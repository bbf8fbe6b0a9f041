package engine

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The futures of the requests of a session. Each has the memory of its answer in
// it, so that a request costs one allocation on its way there and back.

// reading is a future that fills the response in it from the reply.
type reading interface{ read(*arrival) error }

// complete resolves a future with its response or an error.
func complete[T any](f *Future[T], r reading, a *arrival, response T) {
	err := a.err()
	if err == nil {
		err = r.read(a)
	}
	if err != nil {
		f.fail(err)
		return
	}
	f.resolve(response, nil)
}

type putFuture struct {
	Future[*clientv3.PutResponse]
	response pb.PutResponse
	header   pb.ResponseHeader
}

func (f *putFuture) answer(a *arrival) {
	complete(&f.Future, f, a, (*clientv3.PutResponse)(&f.response))
}

func (f *putFuture) read(a *arrival) error {
	a.fillHeader(&f.header)
	f.response.Header = &f.header
	previous, err := readKeyValues(a.body, 2, nil, func(protowire.Number, uint64, []byte) error { return nil })
	if len(previous) > 0 {
		f.response.PrevKv = previous[0]
	}
	return err
}

type getFuture struct {
	Future[*clientv3.GetResponse]
	response pb.RangeResponse
	header   pb.ResponseHeader
	one      keyValue
}

func (f *getFuture) answer(a *arrival) {
	complete(&f.Future, f, a, (*clientv3.GetResponse)(&f.response))
}

func (f *getFuture) read(a *arrival) error {
	a.fillHeader(&f.header)
	r := &f.response
	r.Header = &f.header
	kvs, err := readKeyValues(a.body, 2, &f.one, func(field protowire.Number, v uint64, _ []byte) error {
		switch field {
		case 3:
			r.More = v != 0
		case 4:
			r.Count = int64(v)
		}
		return nil
	})
	r.Kvs = kvs
	return err
}

type deleteFuture struct {
	Future[*clientv3.DeleteResponse]
	response pb.DeleteRangeResponse
	header   pb.ResponseHeader
}

func (f *deleteFuture) answer(a *arrival) {
	complete(&f.Future, f, a, (*clientv3.DeleteResponse)(&f.response))
}

func (f *deleteFuture) read(a *arrival) error {
	a.fillHeader(&f.header)
	r := &f.response
	r.Header = &f.header
	previous, err := readKeyValues(a.body, 3, nil, func(field protowire.Number, v uint64, _ []byte) error {
		if field == 2 {
			r.Deleted = int64(v)
		}
		return nil
	})
	r.PrevKvs = previous
	return err
}

type txnFuture struct {
	Future[*clientv3.TxnResponse]
	response pb.TxnResponse
}

func (f *txnFuture) answer(a *arrival) {
	complete(&f.Future, f, a, (*clientv3.TxnResponse)(&f.response))
}

func (f *txnFuture) read(a *arrival) error {
	err := proto.Unmarshal(a.body, &f.response)
	f.response.Header = a.header()
	return malformed(err)
}

// revisionFuture is answered by what has no body but a revision.
type revisionFuture[T ~int64] struct {
	Future[T]
}

func (f *revisionFuture[T]) answer(a *arrival) {
	if err := a.err(); err != nil {
		f.fail(err)
		return
	}
	f.resolve(T(a.revision), nil)
}

// opFuture turns the answer to any operation into the one type that etcd's Do has.
type opFuture struct {
	Future[clientv3.OpResponse]
	inner answerable
}

func (f *opFuture) answer(a *arrival) {
	f.inner.answer(a)
	switch inner := f.inner.(type) {
	case *putFuture:
		become(f, &inner.Future, (*clientv3.PutResponse).OpResponse)
	case *getFuture:
		become(f, &inner.Future, (*clientv3.GetResponse).OpResponse)
	case *deleteFuture:
		become(f, &inner.Future, (*clientv3.DeleteResponse).OpResponse)
	case *txnFuture:
		become(f, &inner.Future, (*clientv3.TxnResponse).OpResponse)
	}
}

func become[T any](f *opFuture, inner *Future[T], turn func(T) clientv3.OpResponse) {
	if inner.err != nil {
		f.fail(inner.err)
		return
	}
	f.resolve(turn(inner.value), nil)
}
