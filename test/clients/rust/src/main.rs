//! The scenario of ../../doc.go with etcd-client, which works over tonic, hyper and h2.

use std::collections::HashSet;
use std::future::Future;
use std::io::BufRead;
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, EventType, GetOptions, LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, TlsOptions, Txn, TxnOp,
    TxnOpResponse, WatchOptions, WatchStream,
};
use tokio::time::{sleep, timeout};

/// A limit for calls that are expected to be answered.
const WAIT: Duration = Duration::from_secs(60);

type Problem = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<(), Problem>;

fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T, what: &str) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}").into()) }
}

fn refused<T>(got: Result<T, Error>, code: &str, text: &str) -> Outcome {
    match got {
        Err(Error::GRpcStatus(s)) if format!("{:?}", s.code()) == code && s.message().contains(text) => Ok(()),
        Err(e) => Err(format!("got {e:?}, want {code} with {text:?}").into()),
        Ok(_) => Err(format!("no error, want {code}").into()),
    }
}

async fn eventually<F: Future<Output = bool>>(mut holds: impl FnMut() -> F, what: &str) -> Outcome {
    let limit = Instant::now() + WAIT;
    while !holds().await {
        if Instant::now() > limit {
            return Err(format!("{what}: not within {WAIT:?}").into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Where the server is.
#[derive(Clone)]
struct Server {
    target: String,
    authority: Option<Certificate>,
}

impl Server {
    async fn connect(&self, options: ConnectOptions) -> Result<Client, Error> {
        let options = match &self.authority {
            Some(ca) => options.with_tls(TlsOptions::new().ca_certificate(ca.clone())),
            None => options,
        };
        Client::connect([&self.target], Some(options)).await
    }
}

async fn keys(mut c: Client) -> Outcome {
    let first = c.put("/keys/a", "1", None).await?.header().unwrap().revision();
    let second = c.put("/keys/a", "2", Some(PutOptions::new().with_prev_key())).await?;
    equal(second.prev_key().unwrap().value(), b"1", "previous value of the put")?;
    let revision = second.header().unwrap().revision();
    equal(revision > first, true, "a later revision")?;
    let got = c.get("/keys/a", None).await?;
    let kv = &got.kvs()[0];
    equal((kv.value(), kv.version(), kv.mod_revision()), (&b"2"[..], 2, revision), "the key")?;
    let before = c.get("/keys/a", Some(GetOptions::new().with_revision(first))).await?;
    equal(before.kvs()[0].value(), b"1", "the value before")?;
    let gone = c.delete("/keys/", Some(DeleteOptions::new().with_prefix().with_prev_key())).await?;
    equal((gone.deleted(), gone.prev_kvs()[0].value()), (1, &b"2"[..]), "the deletion")?;
    equal(c.get("/keys/a", None).await?.kvs().len(), 0, "keys after the deletion")
}

async fn ranges(mut c: Client) -> Outcome {
    let all: Vec<String> = (0..20).map(|i| format!("/range/{i:02}")).collect();
    for key in &all {
        c.put(key.as_str(), "v", None).await?;
    }
    let prefix = || GetOptions::new().with_prefix();
    let r = c.get("/range/", Some(prefix().with_limit(7))).await?;
    equal((r.kvs().len(), r.more(), r.count()), (7, true, 20), "a limited range")?;
    let r = c.get("/range/", Some(prefix().with_count_only())).await?;
    equal((r.kvs().len(), r.count()), (0, 20), "a count")?;
    let r = c.get("/range/", Some(prefix().with_keys_only().with_sort(SortTarget::Key, SortOrder::Descend))).await?;
    let got: Vec<&str> = r.kvs().iter().map(|kv| kv.key_str().unwrap()).collect();
    equal(got, all.iter().rev().map(String::as_str).collect(), "the order")
}

async fn transaction(mut c: Client) -> Outcome {
    c.put("/txn/a", "1", None).await?;
    let swap = Txn::new()
        .when([Compare::value("/txn/a", CompareOp::Equal, "1")])
        .and_then([TxnOp::put("/txn/a", "2", None), TxnOp::put("/other/a", "2", None)])
        .or_else([TxnOp::get("/txn/a", None)]);
    equal(c.txn(swap.clone()).await?.succeeded(), true, "the first transaction")?;
    let second = c.txn(swap).await?;
    equal(second.succeeded(), false, "the second transaction")?;
    match &second.op_responses()[0] {
        TxnOpResponse::Get(r) => equal(r.kvs()[0].value(), b"2", "its range"),
        other => Err(format!("its range: {other:?}").into()),
    }
}

async fn lease(mut c: Client) -> Outcome {
    let id = c.lease_grant(60, None).await?.id();
    c.put("/lease/a", "v", Some(PutOptions::new().with_lease(id))).await?;
    let (mut keeper, mut answers) = c.lease_keep_alive(id).await?;
    for _ in 0..2 {
        keeper.keep_alive().await?;
        equal(answers.message().await?.map(|a| a.ttl()), Some(60), "TTL")?;
    }
    drop(keeper);
    equal(answers.message().await?.is_none(), true, "the stream ends after the client has closed its side")?;
    let left = c.lease_time_to_live(id, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    equal(left.keys(), &[b"/lease/a".to_vec()], "keys of the lease")?;
    c.lease_revoke(id).await?;
    equal(c.get("/lease/a", None).await?.count(), 0, "keys after the lease is revoked")?;
    refused(c.lease_revoke(id).await, "NotFound", "etcdserver: requested lease not found")
}

/// Opens a Watch stream with one watch, whose creation has been confirmed.
async fn watching(c: &mut Client, prefix: &str, options: WatchOptions) -> Result<(WatchStream, i64), Problem> {
    let mut w = c.watch(prefix, Some(options.with_prefix())).await?;
    let created = w.message().await?.ok_or("the stream has ended")?;
    equal(created.created(), true, "created")?;
    Ok((w, created.watch_id()))
}

struct Seen {
    value: String,
    before: String,
    revision: i64,
    kind: EventType,
}

async fn take(w: &mut WatchStream, n: usize) -> Result<Vec<Seen>, Problem> {
    let mut seen = Vec::new();
    while seen.len() < n {
        let answer = timeout(WAIT, w.message()).await.map_err(|_| format!("{} of {n} events", seen.len()))??;
        for e in answer.ok_or("the stream has ended")?.events() {
            let kv = e.kv().unwrap();
            let before = e.prev_kv().map(|kv| kv.value_str().unwrap()).unwrap_or_default();
            seen.push(Seen { value: kv.value_str()?.into(), before: before.into(), revision: kv.mod_revision(), kind: e.event_type() });
        }
    }
    Ok(seen)
}

fn values(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|e| e.value.as_str()).collect()
}

async fn watch(mut c: Client) -> Outcome {
    let start = c.put("/watch/before", "v", None).await?.header().unwrap().revision();
    let (mut w, id) = watching(&mut c, "/watch/", WatchOptions::new().with_start_revision(start).with_prev_key()).await?;
    let numbers: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    for (i, n) in numbers.iter().enumerate() {
        c.put(format!("/watch/{}", i % 10), n.as_str(), None).await?;
    }
    let events = take(&mut w, 1001).await?;
    equal(events[0].revision, start, "the first event's revision")?;
    equal(values(&events[1..]), numbers.iter().map(String::as_str).collect(), "events")?;
    equal(events[11..].iter().map(|e| &e.before).collect::<Vec<_>>(), numbers[..990].iter().collect(), "previous values")?;
    c.delete("/watch/0", None).await?;
    equal(take(&mut w, 1).await?[0].kind, EventType::Delete, "the event of a deletion")?;
    w.cancel(id).await?;
    equal(w.message().await?.map(|a| a.canceled()), Some(true), "canceled")?;
    c.put("/watch/after", "v", None).await?;
    let last = c.put("/watch/last", "last", None).await?.header().unwrap().revision();
    w.watch("/watch/", Some(WatchOptions::new().with_prefix().with_start_revision(last))).await?;
    equal(values(&take(&mut w, 1).await?), vec!["last"], "the next event of the stream")
}

async fn two_streams(mut c: Client) -> Outcome {
    let (mut a, _) = watching(&mut c, "/two/a/", WatchOptions::new()).await?;
    let (mut b, _) = watching(&mut c, "/two/b/", WatchOptions::new()).await?;
    let numbers: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    for n in &numbers {
        c.put("/two/a/k", n.as_str(), None).await?;
        c.put("/two/b/k", n.as_str(), None).await?;
    }
    equal(values(&take(&mut b, 100).await?), numbers.iter().map(String::as_str).collect(), "events of the second stream")?;
    equal(values(&take(&mut a, 100).await?), numbers.iter().map(String::as_str).collect(), "events of the first stream")?;
    drop(a);
    c.put("/two/b/k", "last", None).await?;
    equal(values(&take(&mut b, 1).await?), vec!["last"], "the second stream after the first")
}

async fn large(mut c: Client) -> Outcome {
    let value: Vec<u8> = (0..1_400_000).map(|i| (i % 251) as u8).collect();
    c.put("/large/a", value.clone(), None).await?;
    equal(c.get("/large/a", None).await?.kvs()[0].value() == value, true, "the value comes back")?;
    c.delete("/large/a", None).await?;
    Ok(())
}

async fn errors(mut c: Client) -> Outcome {
    let revision = c.put("/errors/a", "1", None).await?.header().unwrap().revision();
    let compacted = c.put("/errors/a", "2", None).await?.header().unwrap().revision();
    c.compact(compacted, None).await?;
    let old = c.get("/errors/a", Some(GetOptions::new().with_revision(revision))).await;
    refused(old, "OutOfRange", "etcdserver: mvcc: required revision has been compacted")?;
    let (mut w, _) = watching(&mut c, "/errors/", WatchOptions::new().with_start_revision(revision)).await?;
    let answer = w.message().await?.ok_or("the stream has ended")?;
    equal((answer.canceled(), answer.compact_revision()), (true, compacted), "a watch of what is compacted")?;
    refused(c.put("/errors/a", vec![0; 1_700_000], None).await, "InvalidArgument", "etcdserver: request is too large")?;
    refused(c.put("/errors/a", vec![0; 3_000_000], None).await, "ResourceExhausted", "larger than max")?;
    refused(c.put("", "v", None).await, "InvalidArgument", "etcdserver: key is not provided")
}

async fn concurrent(c: Client) -> Outcome {
    let puts: Vec<_> = (0..1000)
        .map(|i| {
            let mut c = c.clone();
            tokio::spawn(async move { c.put(format!("/many/{i}"), i.to_string(), None).await })
        })
        .collect();
    let mut revisions = HashSet::new();
    for p in puts {
        revisions.insert(p.await??.header().unwrap().revision());
    }
    equal(revisions.len(), 1000, "revisions of the puts")?;
    let gets: Vec<_> = (0..1000)
        .map(|i| {
            let mut c = c.clone();
            tokio::spawn(async move { c.get(format!("/many/{i}"), None).await })
        })
        .collect();
    for (i, g) in gets.into_iter().enumerate() {
        equal(g.await??.kvs()[0].value_str()?, &i.to_string(), "a value")?;
    }
    Ok(())
}

async fn waiters(c: &Client, name: &str) -> i64 {
    let mut c = c.clone();
    let count = c.get(format!("{name}/"), Some(GetOptions::new().with_prefix().with_count_only())).await;
    count.map(|r| r.count()).unwrap_or(-1)
}

/// etcd-client doesn't send the deadline to the server: it cancels the call itself.
async fn deadline(mut c: Client, server: &Server) -> Outcome {
    c.lock("/deadline", None).await?;
    let mut hasty = server.connect(ConnectOptions::new().with_timeout(Duration::from_secs(1))).await?;
    refused(hasty.lock("/deadline", None).await, "Cancelled", "Timeout expired")?;
    eventually(|| async { waiters(&c, "/deadline").await == 1 }, "the server ends the call, too").await
}

async fn cancelled(mut c: Client) -> Outcome {
    c.lock("/cancel", None).await?;
    let mut other = c.clone();
    let call = tokio::spawn(async move { other.lock("/cancel", None).await.map(|_| ()) });
    eventually(|| async { waiters(&c, "/cancel").await == 2 }, "the second call waits").await?;
    call.abort();
    eventually(|| async { waiters(&c, "/cancel").await == 1 }, "the server ends the call, too").await?;
    for _ in 0..3 {
        let mut streams = Vec::new();
        for _ in 0..100 {
            streams.push(watching(&mut c, "/cancel/", WatchOptions::new()).await?);
        }
    }
    c.put("/cancelled", "v", None).await?;
    Ok(())
}

async fn restart(mut c: Client) -> Outcome {
    for how in ["stop", "kill"] {
        c.put("/restart/a", how, None).await?;
        let (mut w, _) = watching(&mut c, "/restart/", WatchOptions::new()).await?;
        ask(how)?;
        if let Ok(answer) = timeout(WAIT, w.message()).await? {
            return Err(format!("the stream goes on after {how}: {answer:?}").into());
        }
        eventually(|| { let mut c = c.clone(); async move { c.get("/restart/a", None).await.is_ok() } }, "a get is answered").await?;
        equal(c.get("/restart/a", None).await?.kvs()[0].value_str()?, how, "the value")?;
        let (mut w, _) = watching(&mut c, "/restart/", WatchOptions::new()).await?;
        c.put("/restart/b", how, None).await?;
        equal(values(&take(&mut w, 1).await?), vec![how], "the event")?;
    }
    Ok(())
}

async fn login(mut c: Client, server: &Server) -> Outcome {
    c.user_add("root", "secret", None).await?;
    c.role_add("root").await?;
    c.user_grant_role("root", "root").await?;
    c.auth_enable().await?;
    refused(c.put("/login/a", "v", None).await, "InvalidArgument", "etcdserver: user name is empty")?;
    let wrong = server.connect(ConnectOptions::new().with_user("root", "wrong")).await;
    refused(wrong, "InvalidArgument", "etcdserver: authentication failed, invalid user ID or password")?;
    let mut right = server.connect(ConnectOptions::new().with_user("root", "secret")).await?;
    right.put("/login/a", "v", None).await?;
    let (mut w, _) = watching(&mut right, "/login/", WatchOptions::new()).await?;
    right.put("/login/a", "last", None).await?;
    equal(values(&take(&mut w, 1).await?), vec!["last"], "the event")?;
    right.auth_disable().await?;
    Ok(())
}

fn ask(what: &str) -> Outcome {
    println!("{what}");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    equal(answer.trim(), "done", "the answer")
}

/// Prints the problem of a step, if there is one.
async fn step(name: &str, outcome: impl Future<Output = Outcome>) -> bool {
    let problem = match timeout(3 * WAIT, outcome).await {
        Ok(Ok(())) => return true,
        Ok(Err(e)) => e.to_string(),
        Err(_) => format!("not within {:?}", 3 * WAIT),
    };
    println!("{name}: {problem}");
    false
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let args: Vec<String> = std::env::args().collect();
    let authority = match args.get(2) {
        Some(file) => Some(Certificate::from_pem(std::fs::read(file)?)),
        None => None,
    };
    let server = Server { target: args[1].clone(), authority };
    let c = server.connect(ConnectOptions::new()).await?;
    let outcomes = [
        step("keys", keys(c.clone())).await,
        step("ranges", ranges(c.clone())).await,
        step("transaction", transaction(c.clone())).await,
        step("lease", lease(c.clone())).await,
        step("watch", watch(c.clone())).await,
        step("two streams", two_streams(c.clone())).await,
        step("large", large(c.clone())).await,
        step("errors", errors(c.clone())).await,
        step("concurrent", concurrent(c.clone())).await,
        step("deadline", deadline(c.clone(), &server)).await,
        step("cancelled", cancelled(c.clone())).await,
        step("restart", restart(c.clone())).await,
        step("login", login(c.clone(), &server)).await,
    ];
    std::process::exit(if outcomes.contains(&false) { 1 } else { 0 })
}
