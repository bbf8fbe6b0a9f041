"""The scenario of ../doc.go with grpcio: stubs compiled from etcd's .proto files."""

import os
import queue
import sys
import time
import traceback

import grpc
from etcd.api.etcdserverpb import rpc_pb2 as pb
from etcd.api.etcdserverpb import rpc_pb2_grpc as rpc
from etcd.api.mvccpb import kv_pb2

WAIT = 60  # seconds; a limit for calls that are expected to be answered


class Client:
    """One channel, which has one connection, and the stubs over it."""

    def __init__(self, target, ca):
        if ca:
            with open(ca, "rb") as f:
                self.channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(f.read()))
        else:
            self.channel = grpc.insecure_channel(target)
        self.kv = rpc.KVStub(self.channel)
        self.watch = rpc.WatchStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)
        # etcd's v3lock.proto is in the module of its server; its messages are small.
        self.lock = self.channel.unary_unary(
            "/v3lockpb.Lock/Lock",
            request_serializer=lambda name: b"\x0a" + bytes([len(name)]) + name,
            response_deserializer=lambda b: b,
        )

    def put(self, key, value=b"v", **fields):
        return self.kv.Put(pb.PutRequest(key=key, value=value, **fields), timeout=WAIT)

    def get(self, key, **fields):
        return self.kv.Range(pb.RangeRequest(key=key, **fields), timeout=WAIT)

    def prefix(self, key, **fields):
        return self.get(key, range_end=end(key), **fields)

    def delete(self, key, **fields):
        return self.kv.DeleteRange(pb.DeleteRangeRequest(key=key, range_end=end(key), **fields), timeout=WAIT)


class Watch:
    """One Watch stream."""

    def __init__(self, client):
        self.requests = queue.Queue()
        self.call = client.watch.Watch(iter(self.requests.get, None))

    def create(self, key, **fields):
        create = pb.WatchCreateRequest(key=key, range_end=end(key), **fields)
        self.requests.put(pb.WatchRequest(create_request=create))
        answer = next(self.call)
        equal(answer.created, True, "created")
        return answer

    def events(self, n):
        got = []
        while len(got) < n:
            got.extend(next(self.call).events)
        return got

    def close(self):
        self.requests.put(None)
        self.call.cancel()


def end(key):
    return key[:-1] + bytes([key[-1] + 1])


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def refused(code, text, call):
    try:
        call()
    except grpc.RpcError as e:
        equal(e.code(), code, "code")
        if text not in e.details():
            raise AssertionError(f"text: got {e.details()!r}, want {text!r}")
        return
    raise AssertionError(f"no error, want {code}")


def ended(call):
    """Waits for the end of a stream whose server ends: UNAVAILABLE, and INTERNAL with etcd over TLS."""
    try:
        answer = next(call)
    except grpc.RpcError as e:
        equal(e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL), True, f"code {e.code()}")
        return
    raise AssertionError(f"the stream goes on: {answer}")


def eventually(holds, what):
    limit = time.monotonic() + WAIT
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f"{what}: not within {WAIT} s")
        time.sleep(0.05)


def keys(c):
    first = c.put(b"/keys/a", b"1")
    second = c.put(b"/keys/a", b"2", prev_kv=True)
    equal(second.prev_kv.value, b"1", "previous value of the put")
    equal(second.header.revision > first.header.revision, True, "a later revision")
    kv = c.get(b"/keys/a").kvs[0]
    equal((kv.value, kv.version, kv.mod_revision), (b"2", 2, second.header.revision), "the key")
    equal(c.get(b"/keys/a", revision=first.header.revision).kvs[0].value, b"1", "the value before")
    gone = c.delete(b"/keys/", prev_kv=True)
    equal((gone.deleted, gone.prev_kvs[0].value), (1, b"2"), "the deletion")
    equal(len(c.get(b"/keys/a").kvs), 0, "keys after the deletion")


def ranges(c):
    for i in range(20):
        c.put(b"/range/%02d" % i)
    r = c.prefix(b"/range/", limit=7)
    equal((len(r.kvs), r.more, r.count), (7, True, 20), "a limited range")
    r = c.prefix(b"/range/", count_only=True)
    equal((len(r.kvs), r.count), (0, 20), "a count")
    r = c.prefix(b"/range/", sort_order=pb.RangeRequest.DESCEND, keys_only=True)
    equal([kv.key for kv in r.kvs], [b"/range/%02d" % i for i in reversed(range(20))], "the order")


def transaction(c):
    c.put(b"/txn/a", b"1")

    def swap():
        return c.kv.Txn(
            pb.TxnRequest(
                compare=[pb.Compare(key=b"/txn/a", target=pb.Compare.VALUE, result=pb.Compare.EQUAL, value=b"1")],
                success=[pb.RequestOp(request_put=pb.PutRequest(key=b"/txn/a", value=b"2")),
                         pb.RequestOp(request_put=pb.PutRequest(key=b"/other/a", value=b"2"))],
                failure=[pb.RequestOp(request_range=pb.RangeRequest(key=b"/txn/a"))],
            ), timeout=WAIT)

    equal(swap().succeeded, True, "the first transaction")
    second = swap()
    equal(second.succeeded, False, "the second transaction")
    equal(second.responses[0].response_range.kvs[0].value, b"2", "its range")


def lease(c):
    granted = c.lease.LeaseGrant(pb.LeaseGrantRequest(TTL=60), timeout=WAIT)
    c.put(b"/lease/a", lease=granted.ID)
    requests = queue.Queue()
    alive = c.lease.LeaseKeepAlive(iter(requests.get, None))
    for _ in range(2):
        requests.put(pb.LeaseKeepAliveRequest(ID=granted.ID))
        equal(next(alive).TTL, 60, "TTL")
    requests.put(None)
    equal(list(alive), [], "answers after the client has closed its side")
    left = c.lease.LeaseTimeToLive(pb.LeaseTimeToLiveRequest(ID=granted.ID, keys=True), timeout=WAIT)
    equal(list(left.keys), [b"/lease/a"], "keys of the lease")
    c.lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=granted.ID), timeout=WAIT)
    equal(c.get(b"/lease/a").count, 0, "keys after the lease is revoked")
    refused(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found",
            lambda: c.lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=granted.ID), timeout=WAIT))


def watch(c):
    start = c.put(b"/watch/before").header.revision
    w = Watch(c)
    created = w.create(b"/watch/", start_revision=start, prev_kv=True)
    for i in range(1000):
        c.put(b"/watch/%d" % (i % 10), b"%d" % i)
    events = w.events(1001)
    equal(events[0].kv.mod_revision, start, "the first event's revision")
    equal([int(e.kv.value) for e in events[1:]], list(range(1000)), "events")
    equal([e.prev_kv.value for e in events[11:]], [b"%d" % i for i in range(990)], "previous values")
    c.delete(b"/watch/0")
    equal(w.events(1)[0].type, kv_pb2.Event.DELETE, "the event of a deletion")
    w.requests.put(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=created.watch_id)))
    equal(next(w.call).canceled, True, "canceled")
    c.put(b"/watch/after")
    w.create(b"/watch/", start_revision=c.put(b"/watch/last", b"last").header.revision)
    equal(w.events(1)[0].kv.value, b"last", "the next event of the stream")
    w.close()


def two_streams(c):
    a, b = Watch(c), Watch(c)
    a.create(b"/two/a/")
    b.create(b"/two/b/")
    for i in range(100):
        c.put(b"/two/a/k", b"%d" % i)
        c.put(b"/two/b/k", b"%d" % -i)
    equal([int(e.kv.value) for e in b.events(100)], [-i for i in range(100)], "events of the second stream")
    equal([int(e.kv.value) for e in a.events(100)], list(range(100)), "events of the first stream")
    a.close()
    c.put(b"/two/b/k", b"last")
    equal(b.events(1)[0].kv.value, b"last", "the second stream after the first")
    b.close()


def clusters(c):
    """Keys under /two/b/ are in another cluster than all else."""
    c.put(b"/two/a/c", b"a")
    c.put(b"/two/b/c", b"b")
    equal([kv.value for kv in c.prefix(b"/two/").kvs if kv.key.endswith(b"/c")], [b"a", b"b"], "a range over both")
    w = Watch(c)
    w.create(b"/two/")
    for i in range(100):
        c.put(b"/two/a/c", b"%d" % i)
        c.put(b"/two/b/c", b"%d" % i)
    seen = w.events(200)
    for key in (b"/two/a/c", b"/two/b/c"):
        equal([int(e.kv.value) for e in seen if e.kv.key == key], list(range(100)), "events of a watch over both")
    w.close()
    granted = c.lease.LeaseGrant(pb.LeaseGrantRequest(TTL=60), timeout=WAIT)
    c.put(b"/two/a/l", lease=granted.ID)
    c.put(b"/two/b/l", lease=granted.ID)
    c.lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=granted.ID), timeout=WAIT)
    equal([kv.key for kv in c.prefix(b"/two/").kvs if kv.key.endswith(b"/l")], [], "keys of the lease in both")
    refused(grpc.StatusCode.UNIMPLEMENTED, "", lambda: c.kv.Txn(pb.TxnRequest(
        success=[pb.RequestOp(request_put=pb.PutRequest(key=b"/two/a/t")),
                 pb.RequestOp(request_put=pb.PutRequest(key=b"/two/b/t"))]), timeout=WAIT))
    equal([kv.key for kv in c.prefix(b"/two/").kvs if kv.key.endswith(b"/t")], [], "keys of the refused transaction")


def large(c):
    value = bytes(range(256)) * 5600  # 1.4 MiB and less
    c.put(b"/large/a", value)
    equal(c.get(b"/large/a").kvs[0].value == value, True, "the value comes back")
    c.delete(b"/large/")


def errors(c):
    revision = c.put(b"/errors/a").header.revision
    c.put(b"/errors/a")
    c.kv.Compact(pb.CompactionRequest(revision=revision + 1), timeout=WAIT)
    refused(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted",
            lambda: c.get(b"/errors/a", revision=revision))
    w = Watch(c)
    w.create(b"/errors/", start_revision=revision)
    answer = next(w.call)
    equal((answer.canceled, answer.compact_revision), (True, revision + 1), "a watch of what is compacted")
    w.close()
    refused(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large",
            lambda: c.put(b"/errors/a", b"x" * 1_700_000))
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max",
            lambda: c.put(b"/errors/a", b"x" * 3_000_000))
    refused(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided", lambda: c.put(b""))
    refused(grpc.StatusCode.UNIMPLEMENTED, "",
            lambda: c.channel.unary_unary("/etcdserverpb.KV/Nothing")(b"", timeout=WAIT))


def concurrent(c):
    puts = [c.kv.Put.future(pb.PutRequest(key=b"/many/%d" % i, value=b"%d" % i), timeout=WAIT) for i in range(1000)]
    equal(len({p.result().header.revision for p in puts}), 1000, "revisions of the puts")
    gets = [c.kv.Range.future(pb.RangeRequest(key=b"/many/%d" % i), timeout=WAIT) for i in range(1000)]
    equal([g.result().kvs[0].value for g in gets], [b"%d" % i for i in range(1000)], "values")


def waiters(c, name):
    return c.prefix(name + b"/", count_only=True).count


def deadline(c):
    c.lock(b"/deadline", timeout=WAIT)
    began = time.monotonic()
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, "", lambda: c.lock(b"/deadline", timeout=1))
    equal(0.9 < time.monotonic() - began < 30, True, "the call ends at its deadline")
    eventually(lambda: waiters(c, b"/deadline") == 1, "the server ends the call, too")
    stream = c.watch.Watch(iter(queue.Queue().get, None), timeout=1)
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, "", lambda: next(stream))


def cancelled(c):
    c.lock(b"/cancel", timeout=WAIT)
    call = c.lock.future(b"/cancel", timeout=WAIT)
    eventually(lambda: waiters(c, b"/cancel") == 2, "the second call waits")
    call.cancel()
    eventually(lambda: waiters(c, b"/cancel") == 1, "the server ends the call, too")
    for _ in range(3):
        streams = [Watch(c) for _ in range(100)]
        for w in streams:
            w.create(b"/cancel/")
        for w in streams:
            w.close()
    c.put(b"/cancelled")


def restart(c):
    for how in ("stop", "kill"):
        c.put(b"/restart/a", how.encode())
        w = Watch(c)
        w.create(b"/restart/")
        ask(how)
        ended(w.call)
        again = c.kv.Range(pb.RangeRequest(key=b"/restart/a"), timeout=WAIT, wait_for_ready=True)
        equal(again.kvs[0].value, how.encode(), "the value after " + how)
        w = Watch(c)
        w.create(b"/restart/")
        c.put(b"/restart/b", how.encode())
        equal(w.events(1)[0].kv.value, how.encode(), "the event after " + how)
        w.close()


def login(c):
    c.auth.UserAdd(pb.AuthUserAddRequest(name="root", password="secret"), timeout=WAIT)
    c.auth.RoleAdd(pb.AuthRoleAddRequest(name="root"), timeout=WAIT)
    c.auth.UserGrantRole(pb.AuthUserGrantRoleRequest(user="root", role="root"), timeout=WAIT)
    c.auth.AuthEnable(pb.AuthEnableRequest(), timeout=WAIT)
    refused(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", lambda: c.put(b"/login/a"))
    refused(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password",
            lambda: c.auth.Authenticate(pb.AuthenticateRequest(name="root", password="wrong"), timeout=WAIT))
    token = c.auth.Authenticate(pb.AuthenticateRequest(name="root", password="secret"), timeout=WAIT).token
    rights = [("token", token)]
    c.kv.Put(pb.PutRequest(key=b"/login/a", value=b"v"), timeout=WAIT, metadata=rights)
    refused(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token",
            lambda: c.kv.Put(pb.PutRequest(key=b"/login/a"), timeout=WAIT, metadata=[("token", "wrong")]))
    c.auth.AuthDisable(pb.AuthDisableRequest(), timeout=WAIT, metadata=rights)


def ask(what):
    print(what, flush=True)
    equal(sys.stdin.readline().strip(), "done", "the answer to " + what)


def main():
    c = Client(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    failed = False
    steps = (keys, ranges, transaction, lease, watch, two_streams, large, errors, concurrent,
             deadline, cancelled, restart, login)
    if os.environ.get("SCENARIO") == "composed":
        steps = (keys, ranges, transaction, lease, watch, two_streams, large, concurrent, clusters, restart)
    for step in steps:
        try:
            step(c)
        except Exception:
            failed = True
            print(f"{step.__name__}: {traceback.format_exc()}", flush=True)
    c.channel.close()
    sys.exit(failed)


main()
