// The scenario of ../doc.go with etcd3, which works over grpc-js.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";

const wait = 60_000; // ms; a limit for calls that are expected to be answered

const [target, ca] = process.argv.slice(2);
const authority = ca && readFileSync(ca);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function connect(auth, faultHandling) {
  return new Etcd3({
    hosts: (ca ? "https://" : "http://") + target,
    credentials: ca && { rootCertificate: authority },
    defaultCallOptions: (context) => (context.isStream ? {} : { deadline: Date.now() + wait }),
    auth,
    faultHandling,
  });
}

// A client that passes on errors which etcd3 deems passing: it repeats such calls, and after three
// refuses to make any for 5 s.
const unguarded = () => connect(undefined, { host: () => noop, global: noop });

// etcd3 has no Lock service, its calls can't be cancelled, and its watches share a stream: here is grpc-js alone.
class Calls {
  constructor() {
    this.channel = new grpc.Client(target, ca ? grpc.credentials.createSsl(authority) : grpc.credentials.createInsecure());
  }

  lock(name, ms) {
    let call;
    const held = new Promise((resolve, reject) => {
      call = this.channel.makeUnaryRequest("/v3lockpb.Lock/Lock", (b) => b, (b) => b,
        Buffer.concat([Buffer.from([0x0a, name.length]), Buffer.from(name)]), { deadline: Date.now() + ms },
        (err, answer) => (err ? reject(err) : resolve(answer)));
    });
    return { call, held };
  }

  // watch opens a Watch stream of one key.
  watch(key) {
    const stream = this.channel.makeBidiStreamRequest("/etcdserverpb.Watch/Watch", (b) => b, (b) => b);
    stream.on("error", () => {}); // of its end
    stream.write(Buffer.concat([Buffer.from([0x0a, 2 + key.length, 0x0a, key.length]), Buffer.from(key)]));
    return new Promise((resolve, reject) => {
      stream.once("data", () => resolve(stream));
      stream.once("error", reject);
    });
  }

  close() {
    this.channel.close();
  }
}

async function refused(call, type, text) {
  const err = await call.then(() => null, (e) => e);
  assert(err, `no error, want ${type}`);
  assert(err.constructor.name === type || err.code === type, `${err.constructor.name} ${err.code}: ${err.message}`);
  assert(err.message.includes(text), err.message);
}

async function eventually(holds, what) {
  for (const limit = Date.now() + wait; !(await holds()); await sleep(50)) {
    assert(Date.now() < limit, `${what}: not within ${wait} ms`);
  }
}

// Collected answers of a watcher.
class Events {
  constructor(watcher) {
    this.list = [];
    this.changed = () => {};
    watcher.on("data", (answer) => {
      this.list.push(...answer.events);
      this.changed();
    });
    watcher.on("error", (err) => {
      this.failed = err;
      this.changed();
    });
  }

  async take(n) {
    const limit = AbortSignal.timeout(wait);
    while (this.list.length < n) {
      if (this.failed) throw this.failed;
      await new Promise((resolve, reject) => {
        this.changed = resolve;
        limit.addEventListener("abort", () => reject(new Error(`${this.list.length} of ${n} events`)), { once: true });
      });
    }
    return this.list.splice(0, n);
  }
}

const text = (event) => event.kv.value.toString();
const upTo = (n) => Array.from({ length: n }, (_, i) => String(i));

async function keys(c) {
  const first = await c.put("/keys/a").value("1").exec();
  const before = await c.put("/keys/a").value("2").getPrevious();
  assert.equal(before.value.toString(), "1");
  assert(BigInt(before.header.revision) > BigInt(first.header.revision));
  const { kvs } = await c.get("/keys/a").exec();
  assert.deepEqual([kvs[0].value.toString(), kvs[0].version, kvs[0].mod_revision], ["2", "2", before.header.revision]);
  assert.equal(await c.get("/keys/a").revision(first.header.revision).string(), "1");
  const gone = await c.delete().prefix("/keys/").getPrevious();
  assert.deepEqual(gone.map((kv) => kv.value.toString()), ["2"]);
  assert.equal(await c.get("/keys/a").string(), null);
}

async function ranges(c) {
  const all = upTo(20).map((i) => `/range/${i.padStart(2, "0")}`);
  for (const key of all) await c.put(key).value("v");
  const some = await c.getAll().prefix("/range/").limit(7).exec();
  assert.deepEqual([some.kvs.length, some.more, some.count], [7, true, "20"]);
  assert.equal(await c.getAll().prefix("/range/").count(), 20);
  assert.deepEqual(await c.getAll().prefix("/range/").sort("Key", "Descend").keys(), all.reverse());
}

async function transaction(c) {
  await c.put("/txn/a").value("1");
  const swap = () => c.if("/txn/a", "Value", "==", "1")
    .then(c.put("/txn/a").value("2"), c.put("/other/a").value("2"))
    .else(c.get("/txn/a")).commit();
  assert.equal((await swap()).succeeded, true);
  const second = await swap();
  assert.equal(second.succeeded, false);
  assert.equal(second.responses[0].response_range.kvs[0].value.toString(), "2");
}

async function lease(c) {
  const l = c.lease(60, { autoKeepAlive: false });
  await l.put("/lease/a").value("v");
  const id = await l.grant();
  for (let i = 0; i < 2; i++) assert.equal((await l.keepaliveOnce()).TTL, "60");
  const left = await c.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  assert.deepEqual(left.keys.map(String), ["/lease/a"]);
  await l.revoke();
  assert.equal(await c.get("/lease/a").exists(), false);
  await refused(c.leaseClient.leaseRevoke({ ID: id }), "EtcdLeaseInvalidError", "etcdserver: requested lease not found");

  // A lease that the client keeps alive by itself, on a stream.
  const kept = c.lease(10);
  await kept.put("/lease/kept").value("v");
  for (let i = 0; i < 2; i++) {
    await new Promise((resolve, reject) => {
      kept.once("keepaliveSucceeded", resolve);
      kept.once("lost", reject);
    });
  }
  assert.equal(await c.get("/lease/kept").exists(), true);
  await kept.revoke();
}

async function watch(c) {
  const start = (await c.put("/watch/before").value("v").exec()).header.revision;
  const w = await c.watch().prefix("/watch/").startRevision(start).withPreviousKV().create();
  const seen = new Events(w);
  for (const i of upTo(1000)) await c.put(`/watch/${i % 10}`).value(i);
  const events = await seen.take(1001);
  assert.equal(events[0].kv.mod_revision, start);
  assert.deepEqual(events.slice(1).map(text), upTo(1000));
  assert.deepEqual(events.slice(11).map((e) => e.prev_kv.value.toString()), upTo(990));
  await c.delete().key("/watch/0");
  assert.equal((await seen.take(1))[0].type, "Delete");
  await w.cancel();
  await c.put("/watch/after").value("v");
  const next = new Events(await c.watch().prefix("/watch/").create());
  await c.put("/watch/last").value("last");
  assert.equal(text((await next.take(1))[0]), "last");
  assert.deepEqual(seen.list, []);
}

// etcd3 puts all watchers of a client on one stream. Beside it there is the stream of a lease that is
// kept alive, and that of another client's watch.
async function twoStreams(c) {
  const other = connect();
  const kept = c.lease(10);
  await kept.grant();
  const watchers = await Promise.all([c.watch().prefix("/two/a/").create(), other.watch().prefix("/two/b/").create()]);
  const [a, b] = watchers.map((w) => new Events(w));
  const alive = new Promise((resolve) => kept.once("keepaliveSucceeded", resolve));
  for (const i of upTo(100)) {
    await c.put("/two/a/k").value(i);
    await c.put("/two/b/k").value("-" + i);
  }
  assert.deepEqual((await b.take(100)).map(text), upTo(100).map((i) => "-" + i));
  assert.deepEqual((await a.take(100)).map(text), upTo(100));
  await alive;
  await watchers[0].cancel();
  await c.put("/two/b/k").value("last");
  assert.equal(text((await b.take(1))[0]), "last");
  await kept.revoke();
  other.close();
}

// Keys under /two/b/ are in another cluster than all else.
async function clusters(c) {
  await c.put("/two/a/c").value("a");
  await c.put("/two/b/c").value("b");
  const both = Object.entries(await c.getAll().prefix("/two/").strings()).filter(([key]) => key.endsWith("/c"));
  assert.deepEqual(both, [["/two/a/c", "a"], ["/two/b/c", "b"]]);
  const watcher = await c.watch().prefix("/two/").create();
  const seen = new Events(watcher);
  for (const i of upTo(100)) {
    await c.put("/two/a/c").value(i);
    await c.put("/two/b/c").value(i);
  }
  const events = await seen.take(200);
  for (const key of ["/two/a/c", "/two/b/c"]) {
    assert.deepEqual(events.filter((e) => e.kv.key.toString() === key).map(text), upTo(100));
  }
  await watcher.cancel();
  const l = c.lease(60, { autoKeepAlive: false });
  await l.put("/two/a/l").value("v");
  await l.put("/two/b/l").value("v");
  await l.revoke();
  assert.deepEqual((await c.getAll().prefix("/two/").keys()).filter((key) => key.endsWith("/l")), []);
  const txn = c.if("/two/a/c", "Version", ">", 0).then(c.put("/two/a/t").value("v"), c.put("/two/b/t").value("v"));
  await refused(txn.commit(), "GRPCNotImplementedError", "");
  assert.deepEqual((await c.getAll().prefix("/two/").keys()).filter((key) => key.endsWith("/t")), []);
}

async function large(c) {
  const value = Buffer.alloc(1_400_000, Uint8Array.from({ length: 251 }, (_, i) => i));
  await c.put("/large/a").value(value);
  assert(value.equals(await c.get("/large/a").buffer()));
  await c.delete().prefix("/large/");
}

async function errors(c) {
  const { revision } = (await c.put("/errors/a").value("1").exec()).header;
  const compacted = (await c.put("/errors/a").value("2").exec()).header.revision;
  await c.kv.compact({ revision: compacted });
  await refused(c.get("/errors/a").revision(revision).exec(), "GRPCOutOfRangeError", "etcdserver: mvcc: required revision has been compacted");
  await refused(c.put("/errors/a").value(Buffer.alloc(1_700_000)).exec(), "GRPCInvalidArgumentError", "etcdserver: request is too large");
  await refused(c.put("").value("v").exec(), "GRPCInvalidArgumentError", "etcdserver: key is not provided");
  const plain = unguarded();
  await refused(plain.put("/errors/a").value(Buffer.alloc(3_000_000)).exec(), "GRPCResourceExhastedError", "larger than max");
  plain.close();
}

async function concurrent(c) {
  const puts = await Promise.all(upTo(1000).map((i) => c.put(`/many/${i}`).value(i).exec()));
  assert.equal(new Set(puts.map((p) => p.header.revision)).size, 1000);
  assert.deepEqual(await Promise.all(upTo(1000).map((i) => c.get(`/many/${i}`).string())), upTo(1000));
}

async function deadline(c) {
  const calls = new Calls();
  await calls.lock("/deadline", wait).held;
  await refused(calls.lock("/deadline", 1000).held, grpc.status.DEADLINE_EXCEEDED, "");
  await eventually(async () => (await c.getAll().prefix("/deadline/").count()) === 1, "the server ends the call, too");
  calls.close();
}

async function cancelled(c) {
  const calls = new Calls();
  await calls.lock("/cancel", wait).held;
  const waiter = calls.lock("/cancel", wait);
  const end = refused(waiter.held, grpc.status.CANCELLED, "");
  await eventually(async () => (await c.getAll().prefix("/cancel/").count()) === 2, "the second call waits");
  waiter.call.cancel();
  await end;
  await eventually(async () => (await c.getAll().prefix("/cancel/").count()) === 1, "the server ends the call, too");
  for (let i = 0; i < 3; i++) {
    const streams = await Promise.all(upTo(100).map(() => calls.watch("/cancel/a")));
    for (const s of streams) s.cancel();
  }
  await c.put("/cancelled").value("v");
  calls.close();
}

// The watcher lives on: etcd3 watches again once it has a connection. A get may fail meanwhile.
async function restart(c) {
  const seen = new Events(await c.watch().prefix("/restart/").create());
  for (const how of ["stop", "kill"]) {
    await c.put("/restart/a").value(how);
    assert.equal(text((await seen.take(1))[0]), how);
    await ask(how);
    let value;
    await eventually(async () => {
      value = await c.get("/restart/a").string().catch(() => undefined);
      return value !== undefined;
    }, "a get is answered");
    assert.equal(value, how);
    await c.put("/restart/b").value(how);
    assert.equal(text((await seen.take(1))[0]), how);
  }
}

async function login(c) {
  const role = await c.role("root").create();
  const user = await c.user("root").create("secret");
  await user.addRole(role);
  await c.auth.authEnable();
  await refused(c.put("/login/a").value("v").exec(), "GRPCInvalidArgumentError", "etcdserver: user name is empty");
  const wrong = connect({ username: "root", password: "wrong" });
  await refused(wrong.put("/login/a").value("v").exec(), "EtcdAuthenticationFailedError", "etcdserver: authentication failed, invalid user ID or password");
  wrong.close();
  const right = connect({ username: "root", password: "secret" });
  await right.put("/login/a").value("v");
  const seen = new Events(await right.watch().prefix("/login/").create());
  await right.put("/login/a").value("last");
  assert.equal(text((await seen.take(1))[0]), "last");
  await right.auth.authDisable();
  right.close();
}

async function ask(what) {
  console.log(what);
  assert.equal((await answers.next()).value, "done");
}

const c = connect();
let failed = 0;
const steps = process.env.SCENARIO === "composed"
  ? [keys, ranges, transaction, lease, watch, twoStreams, large, concurrent, clusters, restart]
  : [keys, ranges, transaction, lease, watch, twoStreams, large, errors, concurrent, deadline, cancelled, restart, login];
for (const step of steps) {
  try {
    await step(c);
  } catch (err) {
    failed = 1;
    console.log(`${step.name}: ${err.stack}`);
  }
}
c.close();
process.exit(failed);
