import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.ClientBuilder;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.common.exception.CompactedException;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.etcd.jetcd.watch.WatchResponse;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The scenario of ../../../../doc.go with jetcd, which works over grpc-java and netty. */
public final class Scenario {
    /** Seconds; a limit for calls that are expected to be answered. */
    private static final long WAIT = 60;

    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    private final String target;
    private final File authority;
    private final Client c;

    private Scenario(String[] args) throws Exception {
        target = args[0];
        authority = args.length > 1 ? new File(args[1]) : null;
        c = builder().build();
    }

    private ClientBuilder builder() throws Exception {
        ClientBuilder b = Client.builder().endpoints((authority == null ? "http://" : "https://") + target);
        if (authority != null) {
            b.sslContext(ssl -> ssl.trustManager(authority)).authority("127.0.0.1");
        }
        return b;
    }

    private interface Step {
        void run() throws Exception;
    }

    private static ByteSequence bytes(String s) {
        return ByteSequence.from(s, StandardCharsets.UTF_8);
    }

    private static <T> T wait(CompletableFuture<T> answer) throws Exception {
        return answer.get(WAIT, TimeUnit.SECONDS);
    }

    private static void equal(Object got, Object want, String what) {
        if (!want.equals(got)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    private static void refused(CompletableFuture<?> answer, Status.Code code, String text) throws Exception {
        try {
            wait(answer);
        } catch (ExecutionException e) {
            Throwable root = e;
            while (root.getCause() != null) {
                root = root.getCause(); // a failed login is one of UNAUTHENTICATED
            }
            Status got = Status.fromThrowable(root);
            if (got.getCode() == code && String.valueOf(got.getDescription()).contains(text)) {
                return;
            }
            throw new AssertionError("want " + code + " with " + text, e);
        }
        throw new AssertionError("no error, want " + code);
    }

    private static void eventually(Callable<Boolean> holds, String what) throws Exception {
        for (long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT); !holds.call(); Thread.sleep(50)) {
            if (System.nanoTime() > limit) {
                throw new AssertionError(what + ": not within " + WAIT + " s");
            }
        }
    }

    private long put(String key, String value) throws Exception {
        return wait(c.getKVClient().put(bytes(key), bytes(value))).getHeader().getRevision();
    }

    private static List<String> values(List<KeyValue> kvs) {
        return kvs.stream().map(kv -> kv.getValue().toString()).collect(Collectors.toList());
    }

    private static List<String> upTo(int n) {
        return IntStream.range(0, n).mapToObj(Integer::toString).collect(Collectors.toList());
    }

    /** Collects the events of a watch. */
    private static class Events implements Watch.Listener {
        final BlockingQueue<Object> queue = new LinkedBlockingQueue<>();

        @Override
        public void onNext(WatchResponse answer) {
            if (answer.isCreatedNotify()) {
                queue.add(this);
            }
            queue.addAll(answer.getEvents());
        }

        @Override
        public void onError(Throwable problem) {
            queue.add(problem);
        }

        @Override
        public void onCompleted() {}

        Object next() throws Exception {
            Object next = queue.poll(WAIT, TimeUnit.SECONDS);
            if (next == null) {
                throw new AssertionError("no event within " + WAIT + " s");
            }
            return next;
        }

        List<WatchEvent> take(int n) throws Exception {
            List<WatchEvent> events = new ArrayList<>();
            while (events.size() < n) {
                Object next = next();
                if (next instanceof Throwable problem) {
                    throw new AssertionError(events.size() + " of " + n + " events", problem);
                }
                if (next instanceof WatchEvent event) {
                    events.add(event);
                }
            }
            return events;
        }

        List<String> values(int n) throws Exception {
            return Scenario.values(take(n).stream().map(WatchEvent::getKeyValue).collect(Collectors.toList()));
        }
    }

    private static Watch.Watcher watch(Client c, String prefix, WatchOption.Builder options, Events events) throws Exception {
        Watch.Watcher w = c.getWatchClient().watch(bytes(prefix), options.isPrefix(true).withCreateNotify(true).build(), events);
        equal(events.next(), events, "the confirmation of the watch");
        return w;
    }

    private void keys() throws Exception {
        long first = put("/keys/a", "1");
        var second = wait(c.getKVClient().put(bytes("/keys/a"), bytes("2"), PutOption.builder().withPrevKV().build()));
        equal(second.getPrevKv().getValue().toString(), "1", "previous value of the put");
        equal(second.getHeader().getRevision() > first, true, "a later revision");
        KeyValue kv = wait(c.getKVClient().get(bytes("/keys/a"))).getKvs().get(0);
        equal(List.of(kv.getValue().toString(), kv.getVersion(), kv.getModRevision()), List.of("2", 2L, second.getHeader().getRevision()), "the key");
        var before = wait(c.getKVClient().get(bytes("/keys/a"), GetOption.builder().withRevision(first).build()));
        equal(values(before.getKvs()), List.of("1"), "the value before");
        var gone = wait(c.getKVClient().delete(bytes("/keys/"), DeleteOption.builder().isPrefix(true).withPrevKV(true).build()));
        equal(values(gone.getPrevKvs()), List.of("2"), "the deletion");
        equal(wait(c.getKVClient().get(bytes("/keys/a"))).getCount(), 0L, "keys after the deletion");
    }

    private void ranges() throws Exception {
        List<String> all = IntStream.range(0, 20).mapToObj(i -> String.format("/range/%02d", i)).collect(Collectors.toList());
        for (String key : all) {
            put(key, "v");
        }
        var r = wait(c.getKVClient().get(bytes("/range/"), GetOption.builder().isPrefix(true).withLimit(7).build()));
        equal(List.of(r.getKvs().size(), r.isMore(), r.getCount()), List.of(7, true, 20L), "a limited range");
        r = wait(c.getKVClient().get(bytes("/range/"), GetOption.builder().isPrefix(true).withCountOnly(true).build()));
        equal(List.of(r.getKvs().size(), r.getCount()), List.of(0, 20L), "a count");
        r = wait(c.getKVClient().get(bytes("/range/"), GetOption.builder().isPrefix(true).withKeysOnly(true)
                .withSortField(GetOption.SortTarget.KEY).withSortOrder(GetOption.SortOrder.DESCEND).build()));
        Collections.reverse(all);
        equal(r.getKvs().stream().map(kv -> kv.getKey().toString()).collect(Collectors.toList()), all, "the order");
    }

    private void transaction() throws Exception {
        put("/txn/a", "1");
        Callable<io.etcd.jetcd.kv.TxnResponse> swap = () -> wait(c.getKVClient().txn()
                .If(new Cmp(bytes("/txn/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1"))))
                .Then(Op.put(bytes("/txn/a"), bytes("2"), PutOption.DEFAULT), Op.put(bytes("/other/a"), bytes("2"), PutOption.DEFAULT))
                .Else(Op.get(bytes("/txn/a"), GetOption.DEFAULT))
                .commit());
        equal(swap.call().isSucceeded(), true, "the first transaction");
        var second = swap.call();
        equal(second.isSucceeded(), false, "the second transaction");
        equal(values(second.getGetResponses().get(0).getKvs()), List.of("2"), "its range");
    }

    private void lease() throws Exception {
        long id = wait(c.getLeaseClient().grant(60)).getID();
        wait(c.getKVClient().put(bytes("/lease/a"), bytes("v"), PutOption.builder().withLeaseId(id).build()));
        equal(wait(c.getLeaseClient().keepAliveOnce(id)).getTTL(), 60L, "TTL");
        var left = wait(c.getLeaseClient().timeToLive(id, LeaseOption.builder().withAttachedKeys().build()));
        equal(left.getKeys().stream().map(ByteSequence::toString).collect(Collectors.toList()), List.of("/lease/a"), "keys of the lease");
        wait(c.getLeaseClient().revoke(id));
        equal(wait(c.getKVClient().get(bytes("/lease/a"))).getCount(), 0L, "keys after the lease is revoked");
        refused(c.getLeaseClient().revoke(id), Status.Code.NOT_FOUND, "etcdserver: requested lease not found");

        // A lease that the client keeps alive by itself, on a stream.
        long kept = wait(c.getLeaseClient().grant(10)).getID();
        BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
        try (var alive = c.getLeaseClient().keepAlive(kept, new StreamObserver<LeaseKeepAliveResponse>() {
            @Override
            public void onNext(LeaseKeepAliveResponse answer) {
                answers.add(answer.getTTL());
            }

            @Override
            public void onError(Throwable problem) {
                answers.add(problem);
            }

            @Override
            public void onCompleted() {}
        })) {
            for (int i = 0; i < 2; i++) {
                equal(answers.poll(WAIT, TimeUnit.SECONDS), 10L, "TTL of the lease that is kept alive");
            }
        }
        wait(c.getLeaseClient().revoke(kept));
    }

    private void watch() throws Exception {
        long start = put("/watch/before", "v");
        Events seen = new Events();
        Watch.Watcher w = watch(c, "/watch/", WatchOption.builder().withRevision(start).withPrevKV(true), seen);
        for (String i : upTo(1000)) {
            put("/watch/" + Integer.parseInt(i) % 10, i);
        }
        var events = seen.take(1001);
        equal(events.get(0).getKeyValue().getModRevision(), start, "the first event's revision");
        var later = events.subList(1, 1001);
        equal(values(later.stream().map(WatchEvent::getKeyValue).collect(Collectors.toList())), upTo(1000), "events");
        equal(values(later.subList(10, 1000).stream().map(WatchEvent::getPrevKV).collect(Collectors.toList())), upTo(990), "previous values");
        wait(c.getKVClient().delete(bytes("/watch/0")));
        equal(seen.take(1).get(0).getEventType(), WatchEvent.EventType.DELETE, "the event of a deletion");
        w.close();
        put("/watch/after", "v");
        Events next = new Events();
        try (var other = watch(c, "/watch/", WatchOption.builder(), next)) {
            put("/watch/last", "last");
            equal(next.values(1), List.of("last"), "the event of the next watch");
        }
        equal(seen.queue.isEmpty(), true, "no event after the end of the watch");
    }

    private void twoStreams() throws Exception {
        Events a = new Events();
        Events b = new Events();
        try (var first = watch(c, "/two/a/", WatchOption.builder(), a); var second = watch(c, "/two/b/", WatchOption.builder(), b)) {
            for (String i : upTo(100)) {
                put("/two/a/k", i);
                put("/two/b/k", i);
            }
            equal(b.values(100), upTo(100), "events of the second stream");
            equal(a.values(100), upTo(100), "events of the first stream");
            first.close();
            put("/two/b/k", "last");
            equal(b.values(1), List.of("last"), "the second stream after the first");
        }
    }

    private void large() throws Exception {
        byte[] value = new byte[1_400_000];
        for (int i = 0; i < value.length; i++) {
            value[i] = (byte) (i % 251);
        }
        wait(c.getKVClient().put(bytes("/large/a"), ByteSequence.from(value)));
        byte[] got = wait(c.getKVClient().get(bytes("/large/a"))).getKvs().get(0).getValue().getBytes();
        equal(Arrays.equals(got, value), true, "the value comes back");
        wait(c.getKVClient().delete(bytes("/large/a")));
    }

    private void errors() throws Exception {
        long revision = put("/errors/a", "1");
        long compacted = put("/errors/a", "2");
        wait(c.getKVClient().compact(compacted));
        refused(c.getKVClient().get(bytes("/errors/a"), GetOption.builder().withRevision(revision).build()),
                Status.Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted");
        Events seen = new Events();
        try (var w = watch(c, "/errors/", WatchOption.builder().withRevision(revision), seen)) {
            Object problem = seen.next();
            if (!(problem instanceof CompactedException e) || e.getCompactedRevision() != compacted) {
                throw new AssertionError("a watch of what is compacted: " + problem);
            }
        }
        refused(c.getKVClient().put(bytes("/errors/a"), ByteSequence.from(new byte[1_700_000])),
                Status.Code.INVALID_ARGUMENT, "etcdserver: request is too large");
        refused(c.getKVClient().put(bytes("/errors/a"), ByteSequence.from(new byte[3_000_000])),
                Status.Code.RESOURCE_EXHAUSTED, "larger than max");
        refused(c.getKVClient().put(bytes(""), bytes("v")), Status.Code.INVALID_ARGUMENT, "etcdserver: key is not provided");
    }

    private void concurrent() throws Exception {
        var puts = upTo(1000).stream().map(i -> c.getKVClient().put(bytes("/many/" + i), bytes(i))).collect(Collectors.toList());
        Set<Long> revisions = new HashSet<>();
        for (var p : puts) {
            revisions.add(wait(p).getHeader().getRevision());
        }
        equal(revisions.size(), 1000, "revisions of the puts");
        var gets = upTo(1000).stream().map(i -> c.getKVClient().get(bytes("/many/" + i))).collect(Collectors.toList());
        List<String> got = new ArrayList<>();
        for (var g : gets) {
            got.addAll(values(wait(g).getKvs()));
        }
        equal(got, upTo(1000), "values");
    }

    private long waiters(String name) throws Exception {
        return wait(c.getKVClient().get(bytes(name + "/"), GetOption.builder().isPrefix(true).withCountOnly(true).build())).getCount();
    }

    private void deadline() throws Exception {
        wait(c.getLockClient().lock(bytes("/deadline"), 0));
        ClientInterceptor hurry = new ClientInterceptor() {
            @Override
            public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
                return next.newCall(method, options.withDeadlineAfter(1, TimeUnit.SECONDS));
            }
        };
        try (Client hasty = builder().interceptor(hurry).build()) {
            refused(hasty.getLockClient().lock(bytes("/deadline"), 0), Status.Code.DEADLINE_EXCEEDED, "");
        }
        eventually(() -> waiters("/deadline") == 1, "the server ends the call, too");
    }

    /** To cancel a future of jetcd doesn't cancel its call: the interceptor keeps the calls. */
    private void cancelled() throws Exception {
        wait(c.getLockClient().lock(bytes("/cancel"), 0));
        List<ClientCall<?, ?>> calls = Collections.synchronizedList(new ArrayList<>());
        ClientInterceptor keep = new ClientInterceptor() {
            @Override
            public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
                ClientCall<Q, A> call = next.newCall(method, options);
                calls.add(call);
                return call;
            }
        };
        try (Client other = builder().interceptor(keep).build()) {
            var held = other.getLockClient().lock(bytes("/cancel"), 0);
            eventually(() -> waiters("/cancel") == 2, "the second call waits");
            calls.forEach(call -> call.cancel("no longer wanted", null));
            refused(held, Status.Code.CANCELLED, "");
            eventually(() -> waiters("/cancel") == 1, "the server ends the call, too");
        }
        for (int i = 0; i < 3; i++) {
            List<Watch.Watcher> streams = new ArrayList<>();
            for (int j = 0; j < 100; j++) {
                streams.add(watch(c, "/cancel/", WatchOption.builder(), new Events()));
            }
            streams.forEach(Watch.Watcher::close);
        }
        put("/cancelled", "v");
    }

    /** The watch lives on: jetcd reports that its stream has ended, and watches again once it has a connection. */
    private void restart() throws Exception {
        Events seen = new Events() {
            @Override
            public void onError(Throwable problem) {}
        };
        try (var w = watch(c, "/restart/", WatchOption.builder(), seen)) {
            for (String how : List.of("stop", "kill")) {
                put("/restart/a", how);
                equal(seen.values(1), List.of(how), "the event before " + how);
                ask(how);
                List<KeyValue> got = new ArrayList<>();
                eventually(() -> {
                    try {
                        return got.addAll(wait(c.getKVClient().get(bytes("/restart/a"))).getKvs());
                    } catch (ExecutionException e) {
                        return false;
                    }
                }, "a get is answered");
                equal(values(got), List.of(how), "the value after " + how);
                put("/restart/b", how);
                equal(seen.values(1), List.of(how), "the event after " + how);
            }
        }
    }

    private void login() throws Exception {
        ByteSequence root = bytes("root");
        wait(c.getAuthClient().userAdd(root, bytes("secret")));
        wait(c.getAuthClient().roleAdd(root));
        wait(c.getAuthClient().userGrantRole(root, root));
        wait(c.getAuthClient().authEnable());
        refused(c.getKVClient().put(bytes("/login/a"), bytes("v")), Status.Code.INVALID_ARGUMENT, "etcdserver: user name is empty");
        try (Client wrong = builder().user(root).password(bytes("wrong")).build()) {
            refused(wrong.getKVClient().put(bytes("/login/a"), bytes("v")), Status.Code.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password");
        }
        try (Client right = builder().user(root).password(bytes("secret")).build()) {
            wait(right.getKVClient().put(bytes("/login/a"), bytes("v")));
            Events seen = new Events();
            try (var w = watch(right, "/login/", WatchOption.builder(), seen)) {
                wait(right.getKVClient().put(bytes("/login/a"), bytes("last")));
                equal(seen.values(1), List.of("last"), "the event");
            }
            wait(right.getAuthClient().authDisable());
        }
    }

    private static void ask(String what) throws Exception {
        System.out.println(what);
        equal(ANSWERS.readLine(), "done", "the answer to " + what);
    }

    /** Prints the problem of a step, if there is one, with its causes and the lines of this file. */
    private static boolean step(String name, Step step) {
        try {
            step.run();
            return true;
        } catch (Throwable problem) {
            for (Throwable e = problem; e != null; e = e.getCause()) {
                String lines = Arrays.stream(e.getStackTrace()).filter(f -> f.getClassName().startsWith("Scenario"))
                        .map(f -> " " + f.getLineNumber()).collect(Collectors.joining());
                System.out.println(name + ": " + e + ", lines" + lines);
            }
            return false;
        }
    }

    public static void main(String[] args) throws Exception {
        Scenario s = new Scenario(args);
        boolean ok = step("keys", s::keys)
                & step("ranges", s::ranges)
                & step("transaction", s::transaction)
                & step("lease", s::lease)
                & step("watch", s::watch)
                & step("two streams", s::twoStreams)
                & step("large", s::large)
                & step("errors", s::errors)
                & step("concurrent", s::concurrent)
                & step("deadline", s::deadline)
                & step("cancelled", s::cancelled)
                & step("restart", s::restart)
                & step("login", s::login);
        s.c.close();
        System.exit(ok ? 0 : 1);
    }
}
