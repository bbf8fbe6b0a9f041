// Requests by method, and those that were slow.
import { metrics, sum } from "./api.js";
import { facts, fill, h, number, rate, table } from "./dom.js";

export const title = "Requests";

export async function show(box, _, { signal, every }) {
  const slow = h("div"), methods = h("div");
  box.append(slow, methods);
  const seen = new Map();
  let at;
  every(3000, async () => {
    const m = await metrics(signal);
    const passed = at ? (performance.now() - at) / 1000 : undefined;
    at = performance.now();
    fill(slow, facts([
      ["Slow reads and applies", number(sum(m, "etcd_server_slow_apply_total"))],
      ["Slow read points", number(sum(m, "etcd_server_slow_read_indexes_total"))],
      ["Watches that lag", number(sum(m, "etcd_debugging_mvcc_slow_watcher_total"))],
      ["Heartbeats sent late", number(sum(m, "etcd_server_heartbeat_send_failures_total"))],
    ]));
    const rows = byMethod(m).map((r) => {
      const before = seen.get(r.method);
      seen.set(r.method, r.total);
      const speed = passed && before !== undefined ? (r.total - before) / passed : undefined;
      return [h("code", null, r.method), rate(speed), number(r.total), h("span", { class: r.failed ? "bad" : "" }, number(r.failed)), r.codes, r.mean, r.within];
    });
    fill(methods, table("Requests that have ended, since the server started",
      [{ name: "Method" }, { name: "Per second", num: true }, { name: "Total", num: true }, { name: "Failed", num: true }, { name: "Codes" }, { name: "Mean time", num: true }, { name: "99 % within", num: true }], rows));
  });
}

// within is the bound of the first bucket that has enough calls, with all below it.
function within(m, method, calls) {
  if (!calls) return "–";
  const bounds = new Map();
  for (const { labels, value } of m.get("grpc_server_handling_seconds_bucket") ?? []) {
    if (`${labels.grpc_service}/${labels.grpc_method}` === method) bounds.set(labels.le, (bounds.get(labels.le) ?? 0) + value);
  }
  const found = [...bounds].filter(([, n]) => n >= calls).map(([le]) => (le === "+Inf" ? Infinity : Number(le)));
  const bound = Math.min(...found);
  return Number.isFinite(bound) ? `${number(1000 * bound)} ms` : "–";
}

// byMethod has times only with --metrics=extensive.
function byMethod(m) {
  const all = new Map();
  for (const { labels, value } of m.get("grpc_server_handled_total") ?? []) {
    if (!value) continue;
    const method = `${labels.grpc_service}/${labels.grpc_method}`;
    const r = all.get(method) ?? { method, total: 0, failed: 0, codes: "", mean: "–", within: "–" };
    r.total += value;
    if (labels.grpc_code !== "OK") {
      r.failed += value;
      r.codes += `${r.codes && ", "}${labels.grpc_code} ${number(value)}`;
    }
    all.set(method, r);
  }
  const of = (name, r) => (m.get(name) ?? []).filter((s) => `${s.labels.grpc_service}/${s.labels.grpc_method}` === r.method).reduce((n, s) => n + s.value, 0);
  for (const r of all.values()) {
    const n = of("grpc_server_handling_seconds_count", r);
    r.within = within(m, r.method, 0.99 * n);
    if (n) r.mean = `${((1000 * of("grpc_server_handling_seconds_sum", r)) / n).toFixed(2)} ms`;
  }
  return [...all.values()].sort((a, b) => b.total - a.total);
}
